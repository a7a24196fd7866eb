package entiam

import (
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"

	"github.com/onward-go/outbox/testdata/iam/entiam/ent/outbox"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/predicate"
)

// Since selects the events that were recorded at t or later.
func Since(t time.Time) predicate.Outbox {
	return func(s *sql.Selector) {
		var from any = t
		switch s.Dialect() {
		case dialect.MySQL: // a time.Time would go through the driver's time zone
			from = t.UTC().Format("2006-01-02 15:04:05.000000")
		case dialect.SQLite:
			from = t.UnixMicro()
		}
		s.Where(sql.GTE(s.C(outbox.FieldCreatedTime), from))
	}
}
