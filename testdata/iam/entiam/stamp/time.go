// Package stamp is the stamp of an event as ent reads it. Ent has one Go type a
// field, whatever the database, and the outbox keeps its stamps in a timestamptz
// on PostgreSQL, a datetime on MySQL and MariaDB, and microseconds on SQLite.
package stamp

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// Time is when an event was recorded, to the microsecond, in UTC.
type Time struct{ time.Time }

// datetime is how MySQL's driver hands out a datetime, unless it is told to
// parse it.
const datetime = "2006-01-02 15:04:05.999999"

// Scan implements sql.Scanner.
func (t *Time) Scan(value any) error {
	switch v := value.(type) {
	case time.Time:
		t.Time = v.UTC()
	case int64:
		t.Time = time.UnixMicro(v).UTC()
	case []byte:
		parsed, err := time.Parse(datetime, string(v))
		if err != nil {
			return fmt.Errorf("stamp: %w", err)
		}
		t.Time = parsed
	default:
		return fmt.Errorf("stamp: a %T is no stamp", value)
	}
	return nil
}

var errNoDatabase = errors.New("stamp: a stamp does not know which database it is for, so it cannot be an argument: use entiam.Since")

// Value implements driver.Valuer. A value that is right for one database
// compares wrongly on another, so it always fails.
func (Time) Value() (driver.Value, error) { return nil, errNoDatabase }
