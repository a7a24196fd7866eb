package persistence

import (
	"cmp"
	"strings"
	"time"
)

// Cursor is a position in the outbox: the key of a row, and the order in which
// rows are read. The zero Cursor lies before every row.
type Cursor struct {
	// CreatedTime is the row's stamp, made by the database, in whole
	// microseconds, UTC.
	CreatedTime time.Time `json:"created_time"`
	// ID breaks ties, compared byte by byte.
	ID string `json:"id"`
}

// Compare returns -1, 0 or +1 as c lies before, at or after other.
func (c Cursor) Compare(other Cursor) int {
	return cmp.Or(c.CreatedTime.Compare(other.CreatedTime), strings.Compare(c.ID, other.ID))
}

// Preceding returns a position before c that lies before none with an earlier time.
func (c Cursor) Preceding() Cursor {
	return Cursor{CreatedTime: c.CreatedTime.Add(-time.Microsecond), ID: lastID}
}

// lastID lies before no id.
var lastID = strings.Repeat("~", MaxIDBytes)

// IsZero reports whether c lies before every row.
func (c Cursor) IsZero() bool { return c.CreatedTime.IsZero() && c.ID == "" }

// String returns the stamp and the id, for logs and errors.
func (c Cursor) String() string {
	if c.IsZero() {
		return "beginning"
	}
	return c.CreatedTime.UTC().Format("2006-01-02T15:04:05.000000Z") + "/" + c.ID
}
