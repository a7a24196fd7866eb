package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// Migrate applies the migrations that the tables lack. All of it is one transaction,
// under a lock, so that replicas may start at once and a crash leaves nothing
// half-done. It refuses a ctx with a transaction, a server that is not supported, and
// a migration that breaks the release before, unless the configuration allows it.
func (s *Store) Migrate(ctx context.Context) error {
	if s.cfg.Invalid != nil {
		return s.cfg.Invalid
	}
	if persistence.InTransaction(ctx) {
		return fmt.Errorf("outbox table %s: migrate: %w: DDL has a transaction of its own", s.table, persistence.ErrInTransaction)
	}
	if err := s.checkServer(ctx, s.cfg.Pool); err != nil {
		return err
	}
	return s.transaction(ctx, func(ctx context.Context, conn Conn) (err error) {
		for _, statement := range []string{s.sql.IsolateMigrations, s.sql.LockMigrations} {
			if statement == "" {
				continue
			}
			if err := lock(ctx, conn, statement); err != nil {
				return s.failed(err, "lock the migrations")
			}
		}
		if s.sql.UnlockMigrations != "" {
			defer func() {
				unlockErr := lock(context.WithoutCancel(ctx), conn, s.sql.UnlockMigrations)
				err = errors.Join(err, s.failed(unlockErr, "unlock the migrations"))
			}()
		}
		a, err := s.migrated(ctx, conn)
		if err != nil {
			return err
		}
		if a.version() > latest(s.migrations) {
			return s.tooNew(a.version())
		}
		pending := a.pending(s.migrations)
		if err := s.refuseBreaking(a, pending); err != nil {
			return err
		}
		for _, m := range pending {
			for _, statement := range m.Statements {
				if _, err := conn.Exec(ctx, statement); err != nil {
					return s.failed(err, "migration %s", m)
				}
			}
		}
		return nil
	})
}

// lock runs a statement that takes or gives up a lock. MySQL answers 0 where it
// could not.
func lock(ctx context.Context, conn Conn, statement string) error {
	return conn.Query(ctx, statement, nil, func(scan func(...any) error) error {
		var answer any
		if err := scan(&answer); err != nil {
			return err
		}
		if n, ok := answer.(int64); ok && n == 0 {
			return errors.New("another replica has held it for a minute")
		}
		return nil
	})
}
