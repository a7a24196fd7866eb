package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// stateError and numberError are like the drivers' errors.
type stateError string

func (e stateError) Error() string    { return "ERROR: something (SQLSTATE " + string(e) + ")" }
func (e stateError) SQLState() string { return string(e) }

// planError is that of a prepared statement whose table has changed.
type planError struct{ stateError }

func (planError) Error() string {
	return "ERROR: cached plan must not change result type (SQLSTATE 0A000)"
}

type numberError struct{ Number uint16 }

func (e *numberError) Error() string { return fmt.Sprintf("Error %d: something", e.Number) }

func TestTransientErrorsAreToldFromOthers(t *testing.T) {
	all := []*Dialect{Postgres, MySQL, SQLite}
	number := func(n uint16) error { return &numberError{n} }
	for _, c := range []struct {
		name      string
		err       error
		dialects  []*Dialect
		transient bool
	}{
		{"nothing", nil, all, false},
		{"an error of the handler", errors.New("poison"), all, false},
		{"a handler's time-out", context.DeadlineExceeded, all, false},
		{"a cancelled handler", context.Canceled, all, false},
		{"a statement that was cancelled", errors.Join(driver.ErrBadConn, context.Canceled), all, false},
		{"no transaction", persistence.ErrNoTransaction, all, false},
		{"a transaction that has ended", sql.ErrTxDone, all, false},
		{"a bad connection", driver.ErrBadConn, all, true},
		{"a closed connection", sql.ErrConnDone, all, true},
		{"a reset connection", &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, all, true},
		{"a refused connection", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, all, true},
		{"a broken pipe", syscall.EPIPE, all, true},
		{"a time-out of the network", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, all, true},
		{"an unknown host", &net.DNSError{Err: "no such host"}, all, false},
		{"a cut answer", io.ErrUnexpectedEOF, all, true},

		{"PostgreSQL: connection failure", stateError("08006"), []*Dialect{Postgres}, true},
		{"PostgreSQL: serialization failure", stateError("40001"), []*Dialect{Postgres}, true},
		{"PostgreSQL: deadlock", stateError("40P01"), []*Dialect{Postgres}, true},
		{"PostgreSQL: lock timeout", stateError("55P03"), []*Dialect{Postgres}, true},
		{"PostgreSQL: shutdown", stateError("57P01"), []*Dialect{Postgres}, true},
		{"PostgreSQL: starting up", stateError("57P03"), []*Dialect{Postgres}, true},
		{"PostgreSQL: idle in transaction", stateError("25P03"), []*Dialect{Postgres}, true},
		{"PostgreSQL: too many connections", stateError("53300"), []*Dialect{Postgres}, true},
		{"PostgreSQL: prepared statement unknown", stateError("26000"), []*Dialect{Postgres}, true},
		{"PostgreSQL: cached plan", planError{"0A000"}, []*Dialect{Postgres}, true},
		{"PostgreSQL: not supported", stateError("0A000"), []*Dialect{Postgres}, false},
		{"PostgreSQL: lost connection", errors.New("failed to send: conn closed"), []*Dialect{Postgres}, true},
		{"PostgreSQL: duplicate key", stateError("23505"), []*Dialect{Postgres}, false},
		{"PostgreSQL: failed transaction", stateError("25P02"), []*Dialect{Postgres}, false},
		{"PostgreSQL: statement timeout", stateError("57014"), []*Dialect{Postgres}, false},
		{"PostgreSQL: no state", stateError(""), []*Dialect{Postgres}, false},

		{"MySQL: deadlock", number(1213), []*Dialect{MySQL}, true},
		{"MySQL: prepared statement unknown", number(1243), []*Dialect{MySQL}, true},
		{"MySQL: table has changed", number(1412), []*Dialect{MySQL}, true},
		{"MySQL: lock wait timeout", number(1205), []*Dialect{MySQL}, true},
		{"MySQL: too many connections", number(1040), []*Dialect{MySQL}, true},
		{"MySQL: interrupted", number(1317), []*Dialect{MySQL}, true},
		{"MySQL: shutdown", number(1053), []*Dialect{MySQL}, true},
		{"MySQL: disconnected", number(4031), []*Dialect{MySQL}, true},
		{"MySQL: rolled back by the group", number(3101), []*Dialect{MySQL}, true},
		{"MySQL: lost connection", errors.New("invalid connection"), []*Dialect{MySQL}, true},
		{"MySQL: duplicate key", number(1062), []*Dialect{MySQL}, false},
		{"MySQL: syntax", number(1064), []*Dialect{MySQL}, false},

		{"SQLite: busy", errors.New("database is locked (5) (SQLITE_BUSY)"), []*Dialect{SQLite}, true},
		{"SQLite: locked", errors.New("database table is locked: outbox"), []*Dialect{SQLite}, true},
		{"SQLite: constraint", errors.New("constraint failed: NOT NULL constraint failed (1299)"), []*Dialect{SQLite}, false},
	} {
		for _, d := range c.dialects {
			wrapped := c.err
			if c.err != nil {
				wrapped = fmt.Errorf("handler: %w", errors.Join(errors.New("first"), fmt.Errorf("%w: it has ended: %w; and that is all", persistence.ErrNoTransaction, c.err)))
			}
			for _, err := range []error{c.err, wrapped} {
				require.Equal(t, c.transient, d.IsTransient(err), "%s: %s: %v", d.Name, c.name, err)
			}
		}
	}
}
