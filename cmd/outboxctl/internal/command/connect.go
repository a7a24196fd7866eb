package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/database"
	"github.com/onward-go/outbox/sqltx"
)

// readTimeout bounds a command that only reads.
const readTimeout = 30 * time.Second

// connection is an open outbox.
type connection struct {
	*sqltx.Outbox
	dialect sqltx.Dialect
}

// connect opens the outbox that the flags name. Create says that a SQLite file
// may be made.
func (a *app) connect(create bool) (connection, error) {
	dsn := a.source()
	if dsn == "" {
		return connection{}, fmt.Errorf("%w: no database is named: set %s, or --dsn", database.ErrDSN, dsnVariable)
	}
	dialect, err := database.DialectOf(dsn, a.dialect)
	if err != nil {
		return connection{}, err
	}
	db, secrets, err := database.Open(dsn, dialect, create)
	a.secrets = secrets
	if err != nil {
		return connection{}, err
	}
	a.database = db
	return connection{sqltx.New(db, dialect, a.naming()...), dialect}, nil
}

func (a *app) naming() (options []sqltx.Option) {
	if a.prefix != "" {
		options = append(options, sqltx.WithTablePrefix(a.prefix))
	}
	if a.schema != "" {
		options = append(options, sqltx.WithSchema(a.schema))
	}
	if a.breaking {
		options = append(options, sqltx.WithBreakingMigrations())
	}
	return options
}

// reading runs a function that only reads, within the time.
func (a *app) reading(ctx context.Context, fn func(ctx context.Context, outbox connection) error) error {
	limit := a.timeout
	if limit == 0 {
		limit = readTimeout
	}
	return a.within(ctx, limit, false, fn)
}

// writing runs a function that may change something, for as long as it takes
// unless the flag bounds it.
func (a *app) writing(ctx context.Context, create bool, fn func(ctx context.Context, outbox connection) error) error {
	return a.within(ctx, a.timeout, create, fn)
}

func (a *app) within(ctx context.Context, limit time.Duration, create bool, fn func(ctx context.Context, outbox connection) error) error {
	if a.timeout < 0 {
		return fmt.Errorf("%w: --timeout is %s, it must not be below 0", errUsage, a.timeout)
	}
	outbox, err := a.connect(create)
	if err != nil {
		return err
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("given up after %s, see --timeout", limit))
		defer cancel()
	}
	err = fn(ctx, outbox)
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}
