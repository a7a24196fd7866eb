package pgpipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Ready reports whether the transaction that is open on a connection can be
// followed: it can still commit, no result is left open, and statements are
// prepared by their text, as pgx does unless it is told otherwise.
func Ready(conn *pgx.Conn) bool {
	return conn.PgConn().TxStatus() == 'T' && !conn.PgConn().IsBusy() && prepares(conn)
}

// prepares reports whether pgx prepares statements on a connection. It is noted
// there, since to ask is to copy the whole configuration.
func prepares(conn *pgx.Conn) bool {
	notes := conn.PgConn().CustomData()
	known, asked := notes[noted].(bool)
	if !asked {
		known = conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
		notes[noted] = known
	}
	return known
}

const noted = "github.com/onward-go/outbox/internal/pgpipeline"

// Follow commits the transaction that is open on a connection, begins another
// one, and runs a statement in it, all in one round trip. It returns how many rows
// the statement has affected.
//
// The next transaction has the isolation level of the one before, and is READ ONLY or
// DEFERRABLE if that was ([COMMIT AND CHAIN]). A statement that cannot run in a
// transaction that is READ ONLY gets one that is as the session has them. One in which
// the rest was set must not be followed.
//
// Committed is told what became of the COMMIT before Follow returns. If it failed,
// the statement has not run, and the error that is returned does not wrap that of the
// COMMIT, which says nothing of the statement; whoever calls ends what there is of a
// transaction by then. Whoever cancels ctx on the way learns nothing: the connection
// is closed, and the COMMIT may have succeeded.
//
// The server answers when the statement is done, so committed waits for the locks
// that the statement waits for. An answer of its own for the COMMIT would cost a
// sixth of what is gained.
//
// [COMMIT AND CHAIN]: https://www.postgresql.org/docs/current/sql-commit.html
func Follow(ctx context.Context, conn *pgx.Conn, query string, args []any, committed func(error)) (rows int64, err error) {
	var prepared [2]*pgconn.StatementDescription
	for i, text := range []string{commitAndChain, query} {
		if prepared[i], err = conn.Prepare(ctx, text, text); err != nil { // once a connection
			err = fmt.Errorf("prepare %s: %w", text, err)
			committed(err) // the server has given the transaction up
			return 0, notRun(err)
		}
	}
	statement := prepared[1]
	var bound pgx.ExtendedQueryBuilder
	if err := bound.Build(conn.TypeMap(), statement, args); err != nil {
		committed(Commit(ctx, conn))
		return 0, err
	}
	p := conn.PgConn().StartPipeline(ctx)
	p.SendQueryStatement(prepared[0], nil, nil, nil)
	p.SendQueryStatement(statement, bound.ParamValues, bound.ParamFormats, bound.ResultFormats)
	if err := p.Sync(); err != nil {
		err = cmp.Or(p.Close(), err)
		committed(err)
		return 0, notRun(err)
	}
	// If the COMMIT fails, the server skips the rest.
	err = outcome(next(p))
	committed(err)
	if err != nil {
		_ = p.Close() // it says the same
		return 0, notRun(err)
	}
	tag, err := next(p)
	err = cmp.Or(err, p.Close())
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case readOnly:
			return afresh(ctx, conn, query, args)
		case unknownStatement: // somebody has deallocated what pgx believes to be prepared
			err = errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	return tag.RowsAffected(), err
}

// afresh begins a transaction that has nothing of the one before, in place of one that
// has failed, and runs a statement in it.
func afresh(ctx context.Context, conn *pgx.Conn, query string, args []any) (rows int64, err error) {
	if _, err := conn.Exec(ctx, rollback+";"+begin); err != nil {
		return 0, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	tag, err := conn.Exec(ctx, query, args...)
	return tag.RowsAffected(), err
}

// notRun is a statement's error where the COMMIT before it has failed.
func notRun(err error) error {
	return fmt.Errorf("the transaction before has not committed: %v", err)
}

// Idle returns why no statement can run on a connection, or nil.
func Idle(conn *pgx.Conn) error {
	switch {
	case conn.IsClosed():
		return errClosed
	case conn.PgConn().IsBusy():
		return errBusy
	}
	return nil
}

var (
	errClosed = errors.New("conn closed") // as pgx says it, by which it is told
	errBusy   = errors.New("the connection is busy with a result that is still open")
)

// Commit commits the transaction that is open on a connection. Ctx cannot cancel it.
func Commit(ctx context.Context, conn *pgx.Conn) error {
	return outcome(conn.Exec(context.WithoutCancel(ctx), commit))
}

// Rollback rolls back the transaction that is open on a connection, if one is: a COMMIT
// that fails ends it, too.
func Rollback(ctx context.Context, conn *pgx.Conn) error {
	if conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	_, err := conn.Exec(ctx, rollback)
	return err
}

// Begin begins a transaction on a connection that has none.
func Begin(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, begin)
	return err
}

// outcome tells whether a COMMIT has committed.
func outcome(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.String() != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return err
}

const (
	commit         = "commit"
	commitAndChain = "commit and chain"
	begin          = "begin"
	rollback       = "rollback"

	readOnly         = "25006" // read_only_sql_transaction
	unknownStatement = "26000" // invalid_sql_statement_name
)

// next reads what became of the next statement of a pipeline.
func next(p *pgconn.Pipeline) (pgconn.CommandTag, error) {
	results, err := p.GetResults()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return pgconn.CommandTag{}, fmt.Errorf("the server's answer is a %T, not that of a statement", results)
	}
	return reader.Close()
}
