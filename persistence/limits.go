package persistence

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what a record and the sidecar hold, in bytes. They are the same on
// every database, so that an event that one accepts no other refuses.
const (
	MaxIDBytes            = 64
	MaxNameBytes          = 255 // event type, aggregate type
	MaxReferenceBytes     = 255 // account id, aggregate id
	MaxHandlerBytes       = 128
	MaxDispatcherBytes    = 128
	MaxErrorBytes         = 4096
	DefaultMaxPayload     = 16 << 20
	maxReportedViolations = 20
)

// Validate checks records against the limits, and their payloads against
// maxPayload. The error is [ErrInvalid]; it names the table and every field
// that is wrong. Stores call it before they write anything.
//
//   - ID: 1 to 64 printable ASCII characters without spaces, unique among the
//     records.
//   - EventType, AggregateType, AggregateID: 1 to 255 bytes; AccountID up to
//     255 bytes. All are valid UTF-8 without NUL.
func Validate(table string, maxPayload int, records ...Record) error {
	var violations []error
	ids := make(map[string]int)
	for i, r := range records {
		report := func(field, format string, args ...any) {
			violations = append(violations, fmt.Errorf("event %d (id %.80q): %s %s", i, r.ID, field, fmt.Sprintf(format, args...)))
		}
		if problem := checkID(r.ID); problem != "" {
			report("id", "%s", problem)
		} else if first, twice := ids[r.ID]; twice {
			report("id", "is that of event %d, too", first)
		}
		ids[r.ID] = i
		for _, f := range []struct {
			name, value string
			limit       int
			optional    bool
		}{
			{"event_type", r.EventType, MaxNameBytes, false},
			{"aggregate_type", r.AggregateType, MaxNameBytes, false},
			{"aggregate_id", r.AggregateID, MaxReferenceBytes, false},
			{"account_id", r.AccountID, MaxReferenceBytes, true},
		} {
			if problem := CheckText(f.value, f.limit); problem != "" && (f.value != "" || !f.optional) {
				report(f.name, "%s", problem)
			}
		}
		if len(r.Payload) > maxPayload {
			report("payload", "is %d bytes, the limit is %d", len(r.Payload), maxPayload)
		}
		if len(violations) >= maxReportedViolations {
			break
		}
	}
	if len(violations) == 0 {
		return nil
	}
	return fmt.Errorf("outbox table %s: nothing is written: %w: %w", table, ErrInvalid, errors.Join(violations...))
}

// CheckText returns what is wrong with a name of 1 to limit bytes, as the end
// of a sentence, or "".
func CheckText(s string, limit int) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > limit:
		return fmt.Sprintf("is %d bytes, the limit is %d", len(s), limit)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "contains a NUL character"
	}
	return ""
}

func checkID(id string) string {
	if problem := CheckText(id, MaxIDBytes); problem != "" {
		return problem
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return "contains a character that is not printable ASCII or is a space"
		}
	}
	return ""
}

// CheckLimit returns an [ErrInvalid] error unless limit is at least 1.
func CheckLimit(limit int) error {
	if limit < 1 {
		return fmt.Errorf("%w: limit is %d, it must be at least 1", ErrInvalid, limit)
	}
	return nil
}

// CheckMonths returns an [ErrInvalid] error unless partitions can be made for so
// many months ahead: 0 to 120.
func CheckMonths(months int) error {
	if months < 0 || months > 120 {
		return fmt.Errorf("%w: partitions for %d months ahead, it must be 0 to 120", ErrInvalid, months)
	}
	return nil
}

// CheckDispatcher returns an [ErrInvalid] error unless name and position are
// ones that every database can keep: 1 to 128 bytes, a time in the years 1 to
// 9999.
func CheckDispatcher(name string, position Cursor) error {
	if problem := CheckText(name, MaxDispatcherBytes); problem != "" {
		return fmt.Errorf("%w: dispatcher name %s", ErrInvalid, problem)
	}
	if year := position.CreatedTime.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Errorf("%w: the cursor's time is in the year %d, it must be in the years 1 to 9999", ErrInvalid, year)
	}
	return nil
}

// CheckOwner returns an [ErrInvalid] error unless owner and duration make a
// lease: 1 to 255 bytes, 0 or more.
func CheckOwner(owner string, duration time.Duration) error {
	if problem := CheckText(owner, MaxReferenceBytes); problem != "" {
		return fmt.Errorf("%w: lease owner %s", ErrInvalid, problem)
	}
	if duration < 0 {
		return fmt.Errorf("%w: lease duration is %s, it must not be negative", ErrInvalid, duration)
	}
	return nil
}

// CheckMarker returns an [ErrInvalid] error unless the marker names an event
// and a handler.
func CheckMarker(m Marker) error {
	if problem := checkID(m.Event.ID); problem != "" {
		return fmt.Errorf("%w: marker of handler %q: event id %s", ErrInvalid, m.Handler, problem)
	}
	if problem := CheckText(m.Handler, MaxHandlerBytes); problem != "" {
		return fmt.Errorf("%w: marker of event %s: handler name %s", ErrInvalid, m.Event, problem)
	}
	return nil
}
