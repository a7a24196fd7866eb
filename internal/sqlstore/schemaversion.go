package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// migrated are the migrations that the tables have, as outbox_schema records them.
type migrated []int

// version is the highest one, 0 if there are no tables. Compatible migrations, which
// are negative, do not count.
func (a migrated) version() int { return slices.Max(append(a, 0)) }

// pending returns those of all that are not applied.
func (a migrated) pending(all []schema.Migration) (pending []schema.Migration) {
	for _, m := range all {
		if recorded := m.Recorded(); recorded > a.version() || recorded < 0 && !slices.Contains(a, recorded) {
			pending = append(pending, m)
		}
	}
	return pending
}

// checkSchema makes sure that the tables are those of this library, or have compatible
// migrations of a later one beside.
func (s *Store) checkSchema(ctx context.Context, conn Conn) error {
	a, err := s.migrated(ctx, conn)
	if err != nil {
		return err
	}
	pending := a.pending(s.migrations)
	switch {
	case a.version() == 0:
		return s.outdated(fmt.Sprintf("table %s is missing", s.table))
	case a.version() > latest(s.migrations):
		return s.tooNew(a.version())
	case len(pending) > 0:
		return s.outdated(fmt.Sprintf("the tables of %s lack migration %s", s.table, pending[0]))
	}
	return nil
}

// latest is the version that the tables have once all migrations are applied.
func latest(all []schema.Migration) (version int) {
	for _, m := range all {
		version = max(version, m.Recorded())
	}
	return version
}

func (s *Store) outdated(what string) error {
	return persistence.Finding{Severity: persistence.SeverityError, Problem: what, Remedy: "apply the migrations first", Kind: persistence.ErrSchema}
}

func (s *Store) tooNew(version int) error {
	return persistence.Finding{
		Severity: persistence.SeverityError, Kind: persistence.ErrSchema, Remedy: "upgrade the library",
		Problem: fmt.Sprintf("table %s has version %d, this library knows %d", s.table, version, latest(s.migrations)),
	}
}

// migrated returns what is applied. It looks for the table before it reads it: a failed
// statement would abort a PostgreSQL transaction.
func (s *Store) migrated(ctx context.Context, conn Conn) (a migrated, err error) {
	found, err := exists(ctx, conn, s.sql.FindSchema)
	if err != nil || !found {
		return nil, s.failed(err, "look for the schema version")
	}
	err = conn.Query(ctx, s.sql.SchemaVersions, nil, func(scan func(...any) error) error {
		var version int
		err := scan(&version)
		a = append(a, version)
		return err
	})
	return a, s.failed(err, "read the schema version")
}

// SchemaVersion returns the version of the tables, 0 if there are none, whether
// or not it is the one that the library needs.
func (s *Store) SchemaVersion(ctx context.Context) (int, error) {
	a, err := s.migratedAnywhere(ctx)
	return a.version(), err
}

// PendingMigrations returns the migrations that Migrate would apply, in their order.
func (s *Store) PendingMigrations(ctx context.Context) ([]schema.Migration, error) {
	a, err := s.migratedAnywhere(ctx)
	if err != nil {
		return nil, err
	}
	return a.pending(s.migrations), nil
}

func (s *Store) migratedAnywhere(ctx context.Context) (migrated, error) {
	if s.cfg.Invalid != nil {
		return nil, s.cfg.Invalid
	}
	if err := s.checkServer(ctx, s.cfg.Pool); err != nil {
		return nil, err
	}
	return s.migrated(ctx, s.cfg.Pool)
}

// refuseBreaking returns an error that names what the pending migrations break, unless
// the caller has said that they may, or there are no tables yet that anybody works with.
func (s *Store) refuseBreaking(a migrated, pending []schema.Migration) error {
	if a.version() == 0 || s.cfg.BreakingMigrations {
		return nil
	}
	var problems []error
	for _, m := range pending {
		if m.Recorded() > 0 {
			problems = append(problems, persistence.Finding{
				Severity: persistence.SeverityError, Kind: persistence.ErrSchema,
				Problem: fmt.Sprintf("migration %s of table %s breaks the release before: %s", m, s.table, m.Breaks),
				Remedy:  "stop the replicas of the former release, then migrate with WithBreakingMigrations, or outboxctl migrate up --breaking",
			})
		}
	}
	return errors.Join(problems...)
}
