package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// IsTransient implements persistence.FaultJudge.
func (s *Store) IsTransient(err error) bool {
	return s.cfg.Dialect != nil && s.cfg.Dialect.IsTransient(err)
}

// judged marks a transaction's error that is transient. Its methods may be the user's.
func (s *Store) judged(err error) error {
	if err == nil {
		return nil
	}
	isTransient, judgeErr := usercode.Ask(func() bool { return !errors.Is(err, persistence.ErrTransient) && s.IsTransient(err) })
	if judgeErr != nil || !isTransient {
		return err // which is the caller's to look into
	}
	return fmt.Errorf("%w: %w", persistence.ErrTransient, err)
}

// judgedChain marks the errors of a chain's transactions, as Atomically does.
type judgedChain struct {
	persistence.Chain
	store *Store
}

// Atomically implements persistence.Chain.
func (c judgedChain) Atomically(ctx context.Context, fn func(context.Context) error, committed func(error)) (held bool, err error) {
	held, err = c.Chain.Atomically(ctx, fn, func(err error) { committed(c.store.judged(err)) })
	return held, c.store.judged(err)
}

// IsTransient reports whether an error is none of the fault of what was tried.
// The end of a context is not among them: whoever set it knows what it means.
func (d *Dialect) IsTransient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return inChain(err, func(e error) bool { return d.lost(e) || unreachable(e) || d.isTransient(e) })
}

// unreachable reports that a server does not answer.
func unreachable(err error) bool {
	for _, lost := range []error{io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, lost) {
			return true
		}
	}
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

func postgresIsTransient(err error) bool {
	switch state := sqlState(err); {
	case len(state) != 5:
	case state[:2] == "08", // connection exception
		state == "40001", // serialization failure
		state == "40P01", // deadlock
		state == "55P03", // lock timeout
		state == "53300", // too many connections
		state == "26000", // the session does not know the prepared statement, as behind a pooler
		state == "0A000" && strings.Contains(err.Error(), "cached plan"), // a table has changed under a prepared statement
		state == "57P01", state == "57P02", state == "57P03", state == "57P05", // the server shuts down or ends the session
		state == "25P03", state == "25P04": // idle in transaction too long, transaction too long
		return true
	}
	return false
}

func mysqlIsTransient(err error) bool {
	switch mysqlNumber(err) {
	case 1213, 1205, 1020, 1180, 3101, // see mysqlEndsTransaction
		1040,                   // too many connections
		1053,                   // the server shuts down
		1317,                   // interrupted
		1461,                   // too many prepared statements
		1615,                   // the statement has to be prepared again
		1243,                   // the session does not know the prepared statement
		1412,                   // a table has changed since the transaction began
		1927, 2006, 2013, 4031: // the connection was ended
		return true
	}
	return false
}

// sqliteIsTransient tells by the text, since the drivers' errors have nothing
// else in common.
func sqliteIsTransient(err error) bool {
	text := err.Error()
	return strings.Contains(text, "database is locked") || strings.Contains(text, "database table is locked") || strings.Contains(text, "SQLITE_BUSY")
}

// inChain reports whether an error, or one that it wraps, is of a kind.
func inChain(err error, is func(error) bool) bool {
	if err == nil {
		return false
	}
	if is(err) {
		return true
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return inChain(u.Unwrap(), is)
	case interface{ Unwrap() []error }:
		for _, e := range u.Unwrap() {
			if inChain(e, is) {
				return true
			}
		}
	}
	return false
}
