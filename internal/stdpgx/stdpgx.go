// Package stdpgx pipelines transactions under database/sql, where its driver is
// that of pgx.
package stdpgx

import (
	"context"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/onward-go/outbox/internal/pgpipeline"
	"github.com/onward-go/outbox/internal/stdsql"
)

// Pipeline is one, over connections of pgx's driver.
type Pipeline struct{}

var _ stdsql.Pipeline = Pipeline{}

// Ready implements stdsql.Pipeline.
func (Pipeline) Ready(driverConn any) bool {
	conn, ok := driverConn.(*stdlib.Conn)
	return ok && pgpipeline.Ready(conn.Conn())
}

// Follow implements stdsql.Pipeline.
func (Pipeline) Follow(ctx context.Context, driverConn any, query string, args []any, committed func(error)) (rows int64, err error) {
	return pgpipeline.Follow(ctx, driverConn.(*stdlib.Conn).Conn(), query, args, committed)
}

// Commit implements stdsql.Pipeline.
func (Pipeline) Commit(ctx context.Context, driverConn any) error {
	return pgpipeline.Commit(ctx, driverConn.(*stdlib.Conn).Conn())
}

// CanBegin implements stdsql.Pipeline.
func (Pipeline) CanBegin(driverConn any, args []any) bool {
	_, ok := driverConn.(*stdlib.Conn)
	return ok && pgpipeline.CanBegin(args)
}

// BeginWith implements stdsql.Pipeline.
func (Pipeline) BeginWith(ctx context.Context, driverConn any, query string, args []any) (rows int64, begun bool, err error) {
	tx, tag, err := pgpipeline.BeginWith(ctx, driverConn.(*stdlib.Conn).Conn(), query, args)
	return tag.RowsAffected(), tx != nil, err
}

// Idle implements stdsql.Pipeline.
func (Pipeline) Idle(driverConn any) error {
	return pgpipeline.Idle(driverConn.(*stdlib.Conn).Conn())
}

// Rollback implements stdsql.Pipeline.
func (Pipeline) Rollback(ctx context.Context, driverConn any) error {
	return pgpipeline.Rollback(ctx, driverConn.(*stdlib.Conn).Conn())
}

// Begin implements stdsql.Pipeline.
func (Pipeline) Begin(ctx context.Context, driverConn any) error {
	return pgpipeline.Begin(ctx, driverConn.(*stdlib.Conn).Conn())
}
