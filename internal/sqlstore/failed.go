package sqlstore

import (
	"fmt"
	"sync/atomic"
)

// FailedStatement remembers the statement for which a transaction cannot commit, to
// name it where whoever ran it has ignored its error.
type FailedStatement struct {
	statement atomic.Pointer[failedStatement]
}

type failedStatement struct {
	query string
	err   error
}

// Ran takes note of a statement that ran, and of its error. Where an error aborts the
// transaction, it is the first that counts, and a statement that succeeds says that what
// failed has been taken back to a savepoint. Elsewhere it is the last one.
func (f *FailedStatement) Ran(d *Dialect, query string, err error) {
	known := f.statement.Load()
	switch {
	case err == nil && (known == nil || !d.AbortsOnError):
	case err == nil:
		f.statement.Store(nil)
	case d.AbortsOnError && (known != nil || sqlState(err) == ""): // an error of the client's aborts nothing
	default:
		f.statement.Store(&failedStatement{query, err})
	}
}

// Explain adds the statement, and its error, to why the transaction has not committed.
func (f *FailedStatement) Explain(err error) error {
	known := f.statement.Load()
	if err == nil || known == nil {
		return err
	}
	if sqlState(known.err) == abortedState {
		return fmt.Errorf("%w: a statement that was prepared, or that did not run here, had failed before %.200q", err, known.query)
	}
	return fmt.Errorf("%w: the statement %.200q had failed, and its error was ignored: %w", err, known.query, known.err)
}

// abortedState is PostgreSQL's answer once a statement has failed.
const abortedState = "25P02"

// Name says which statement an error is of.
func Name(query string, err error) error {
	if err == nil || query == "" {
		return err
	}
	return fmt.Errorf("%.200q: %w", query, err)
}
