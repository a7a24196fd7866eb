package pgxtx

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows are the user's, and let the transaction know when they are closed.
type rows struct {
	pgx.Rows
	of *handle
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
	r.of.done(r, r.Rows.Err())
}

// row is likewise. One that nobody scans stays open.
type row struct {
	pgx.Row
	of *handle
}

func (r *row) Scan(dest ...any) error {
	err := r.Row.Scan(dest...)
	r.of.done(r, err)
	return err
}

// finish reads the row into nothing, which closes it, too.
func (r *row) finish() { _ = r.Scan() }

// batch is likewise.
type batch struct {
	pgx.BatchResults
	of *handle
}

func (b *batch) Close() error {
	err := b.BatchResults.Close()
	b.of.done(b, err)
	return err
}

func (b *batch) finish() { _ = b.Close() }

// done takes note that a result is closed. It may be so more than once, also
// when the connection is somebody else's already.
func (h *handle) done(r result, err error) {
	if h.watch.closed(r) {
		h.ran(err)
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
