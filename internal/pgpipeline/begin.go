package pgpipeline

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CanBegin reports whether a transaction can begin with a statement of these arguments.
// One without any may be several statements, and an option of pgx is none in a batch.
func CanBegin(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return false
	}
	return true
}

// BeginWith begins a transaction with a statement, in one round trip. If the statement
// fails there may be a transaction, which cannot commit, or none: nil.
func BeginWith(ctx context.Context, conn *pgx.Conn, query string, args []any) (begun pgx.Tx, tag pgconn.CommandTag, err error) {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(query, args...)
	results := conn.SendBatch(ctx, batch)
	_, err = results.Exec()
	if err == nil {
		tag, err = results.Exec()
	}
	if err = cmp.Or(err, results.Close()); err != nil && conn.PgConn().TxStatus() == 'I' {
		return nil, tag, err
	}
	return results.Tx(), tag, err
}
