package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// Migrate brings the tables to schema.Version. All of it is one transaction,
// under a lock, so that replicas may start at once and a crash leaves nothing
// half-done. It refuses a ctx with a transaction, and a server that is not
// supported.
func (s *Store) Migrate(ctx context.Context) error {
	if s.cfg.Invalid != nil {
		return s.cfg.Invalid
	}
	if persistence.InTransaction(ctx) {
		return fmt.Errorf("outbox table %s: migrate: %w: DDL has a transaction of its own", s.table, persistence.ErrInTransaction)
	}
	migrations, err := schema.Render(s.cfg.Dialect.Name, s.cfg.Naming)
	if err != nil {
		return err
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
		version, err := s.version(ctx, conn)
		if err != nil {
			return err
		}
		if version > schema.Version {
			return s.tooNew(version)
		}
		for _, m := range migrations {
			if m.Version <= version {
				continue
			}
			for _, statement := range m.Statements {
				if _, err := conn.Exec(ctx, statement); err != nil {
					return s.failed(err, "migration %04d_%s", m.Version, m.Name)
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
