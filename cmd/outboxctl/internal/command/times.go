package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// parseDuration reads a duration of Go, or a number of days: 90d.
func parseDuration(text string) (time.Duration, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration such as 15m, 36h or 90d", text)
	}
	return d, nil
}

// days is a flag that parseDuration reads.
type days time.Duration

func (d *days) Type() string { return "duration" }

func (d *days) String() string {
	const day = 24 * time.Hour
	if v := time.Duration(*d); v > 0 && v%day == 0 {
		return fmt.Sprintf("%dd", v/day)
	}
	return time.Duration(*d).String()
}

// Set implements pflag.Value.
func (d *days) Set(text string) error {
	v, err := parseDuration(text)
	if err == nil && v < 0 {
		err = fmt.Errorf("%q is below 0", text)
	}
	*d = days(v)
	return err
}

// instant is a flag that is a time, or how long ago it was.
type instant struct {
	at  time.Time
	ago time.Duration
	set bool
}

func (i *instant) Type() string { return "time" }

func (i *instant) String() string {
	switch {
	case !i.set:
		return ""
	case i.at.IsZero():
		return i.ago.String()
	}
	return moment(i.at)
}

func (i *instant) Set(text string) error {
	i.set = true
	if ago, err := parseDuration(text); err == nil && ago >= 0 {
		i.ago = ago
		return nil
	}
	at, err := parseTime(text)
	i.at = at
	return err
}

// time returns it, given the database's clock.
func (i *instant) time(now time.Time) time.Time {
	if !i.at.IsZero() {
		return i.at
	}
	return now.Add(-i.ago)
}

func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02T15:04:05", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time such as 2026-11-30T07:00:00Z, in UTC unless it says otherwise, nor a time ago such as 15m, 36h or 90d", text)
}

// parsePosition reads what [persistence.Cursor.String] writes, or a time alone.
func parsePosition(text string) (persistence.Cursor, error) {
	if text == beginningWord {
		return persistence.Cursor{}, nil
	}
	stamp, id, _ := strings.Cut(text, "/")
	at, err := parseTime(stamp)
	if err != nil {
		return persistence.Cursor{}, fmt.Errorf("%q is no position: %s, a time, or TIME/EVENT_ID as the lists show it", text, beginningWord)
	}
	return persistence.Cursor{CreatedTime: at, ID: id}, nil
}

const beginningWord = "beginning"
