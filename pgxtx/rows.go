package pgxtx

import (
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows are the user's, and let the transaction know when they are closed.
type rows struct {
	pgx.Rows
	of    *handle
	query string
}

func (r *rows) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.finish()
	}
	return more
}

func (r *rows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.finish()
	}
	return err
}

func (r *rows) Close() { r.finish() }

func (r *rows) finish() {
	r.Rows.Close()
	r.of.done(r, r.query, r.Rows.Err())
}

// row is likewise. One that nobody scans stays open.
type row struct {
	pgx.Row
	of    *handle
	query string
}

func (r *row) Scan(dest ...any) error {
	err := r.Row.Scan(dest...)
	r.of.done(r, r.query, err)
	return err
}

// finish reads the row into nothing, which closes it, too.
func (r *row) finish() { _ = r.Scan() }

// batch is likewise.
type batch struct {
	pgx.BatchResults
	of     *handle
	queued []*pgx.QueuedQuery
	read   int // how many results have been asked for
	failed string
}

func (b *batch) Exec() (pgconn.CommandTag, error) {
	tag, err := b.BatchResults.Exec()
	b.next(err)
	return tag, err
}

func (b *batch) Query() (pgx.Rows, error) {
	found, err := b.BatchResults.Query()
	b.next(err)
	return found, err
}

func (b *batch) QueryRow() pgx.Row {
	b.next(nil)
	return b.BatchResults.QueryRow()
}

// next takes note of which statement an error is of.
func (b *batch) next(err error) {
	if err != nil && b.failed == "" && b.read < len(b.queued) {
		b.failed = b.queued[b.read].SQL
	}
	b.read++
}

func (b *batch) Close() error {
	err := b.BatchResults.Close()
	b.of.done(b, b.name(), err)
	return err
}

// name is the statement that has failed, or those among which it is.
func (b *batch) name() string {
	switch n := len(b.queued); {
	case b.failed != "":
		return b.failed
	case n == 1:
		return b.queued[0].SQL
	case n == 0:
		return "a batch"
	default:
		return fmt.Sprintf("one of a batch of %d, the first of them %s", n, b.queued[0].SQL)
	}
}

func (b *batch) finish() { _ = b.Close() }

// done takes note that a result is closed. It may be so more than once, also
// when the connection is somebody else's already.
func (h *handle) done(r result, query string, err error) {
	if h.watch.closed(r) {
		h.ran(query, err)
	}
}

// noRows stand for a result that there is none of.
type noRows struct{ err error }

func (noRows) Close()                                       {}
func (n noRows) Err() error                                 { return n.err }
func (noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (noRows) Next() bool                                   { return false }
func (n noRows) Scan(...any) error                          { return n.err }
func (n noRows) Values() ([]any, error)                     { return nil, n.err }
func (noRows) RawValues() [][]byte                          { return nil }
func (noRows) Conn() *pgx.Conn                              { return nil }
func (noRows) TypeMap() *pgtype.Map                         { return nil }
