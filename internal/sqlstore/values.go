package sqlstore

import (
	"fmt"
	"reflect"
	"time"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// at encodes a cursor's time as an argument, in the resolution that is stored.
func (s *Store) at(t time.Time) any {
	return s.cfg.Dialect.encodeTime(t.Truncate(time.Microsecond))
}

// timestamp reads a time column, whatever form the database gives it. NULL is
// the zero time.
type timestamp struct{ dest *time.Time }

// Scan implements sql.Scanner.
func (t timestamp) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t.dest = time.Time{}
	case time.Time:
		*t.dest = v.UTC()
	case int64:
		*t.dest = time.UnixMicro(v).UTC()
	case []byte:
		return t.Scan(string(v))
	case string:
		at, err := decodeMySQLTime(v)
		*t.dest = at
		return err
	default:
		return fmt.Errorf("%w: a time column holds a %T", persistence.ErrSchema, src)
	}
	return nil
}

// notNull returns a slice that drivers do not take for NULL.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// expand fills the names into every statement.
func (s statements) expand(n schema.Naming) statements {
	v := reflect.ValueOf(&s).Elem()
	for _, name := range statementNames() {
		f := v.FieldByName(name)
		f.SetString(n.Expand(f.String()))
	}
	return s
}

// statementNames returns the names of all fields that hold a statement.
func statementNames() []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[statements]()) {
		if !f.Anonymous {
			names = append(names, f.Name)
		}
	}
	return names
}

// Text returns a statement by the name of its field, with the names filled in,
// for tests that look at its plan.
func (d *Dialect) Text(name string, n schema.Naming) string {
	return reflect.ValueOf(d.statements.expand(n)).FieldByName(name).String()
}
