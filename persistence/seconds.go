package persistence

import (
	"strconv"
	"time"
)

// Seconds is a duration that JSON shows as a number of seconds, to the
// microsecond.
type Seconds time.Duration

// Duration returns s as a duration.
func (s Seconds) Duration() time.Duration { return time.Duration(s) }

// String returns s as a duration is written.
func (s Seconds) String() string { return time.Duration(s).String() }

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) {
	micros := time.Duration(s).Round(time.Microsecond)
	return strconv.AppendFloat(nil, micros.Seconds(), 'f', -1, 64), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Seconds) UnmarshalJSON(text []byte) error {
	seconds, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return err
	}
	*s = Seconds(time.Duration(seconds * float64(time.Second)).Round(time.Microsecond))
	return nil
}
