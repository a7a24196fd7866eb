package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/onward-go/outbox/persistence"
)

// checkAgain is what is asked anew, outside of any transaction, whenever a dispatcher
// takes or renews its lease: the session may be another one, and
// somebody may have changed its settings, or the tables.
func (s *Store) checkAgain(ctx context.Context, conn Conn) error {
	if _, err := s.cfg.Dialect.describe(ctx, conn); err != nil {
		return s.failed(err, "check the session")
	}
	if !s.cfg.Dialect.watchesTables {
		return nil
	}
	return s.checkTables(ctx, conn, ofParent)
}

// hidden says whose hidden rows matter to the caller.
type hidden int

const (
	ofNone      hidden = iota // a statement that writes fails where a policy forbids it
	ofParent                  // what is read through the partitioned tables
	ofPartition               // and from a partition by its name
)

// checkTables refuses tables that are not what the statements take them for, or that
// do not show the user all of their rows.
func (s *Store) checkTables(ctx context.Context, conn Conn, h hidden) error {
	var all []error
	err := conn.Query(ctx, s.sql.DescribeTables, nil, func(scan func(...any) error) error {
		var table, fault, name string
		if err := scan(&table, &fault, &name); err != nil {
			return err
		}
		all = append(all, judgeTable(table, fault, name, h))
		return nil
	})
	if err != nil {
		return s.failed(err, "look at the tables")
	}
	return s.failed(errors.Join(all...), "look at the tables")
}

func judgeTable(table, fault, name string, h hidden) error {
	find := func(kind error, problem, remedy string) error {
		return persistence.Finding{Severity: persistence.SeverityError, Kind: kind, Problem: problem, Remedy: remedy}
	}
	switch fault {
	case "hidden rows":
		if h == ofNone {
			return nil
		}
		return rowSecurity(table, name)
	case "hidden rows of a partition":
		if h != ofPartition {
			return nil
		}
		return rowSecurity(table, name)
	case "rule":
		return find(persistence.ErrSchema, fmt.Sprintf("rule %q runs in place of statements on table %s", name, table), "drop the rule")
	case "temporary":
		return find(persistence.ErrSchema, fmt.Sprintf("a temporary table %s of this session hides that of the outbox", table),
			"drop it, or give it another name; with WithSchema, PostgreSQL does not look among temporary tables")
	case "unlogged":
		return find(persistence.ErrSchema, fmt.Sprintf("table %s is unlogged, so a crash empties it", table), "ALTER TABLE "+table+" SET LOGGED")
	case "engine":
		return find(persistence.ErrSchema, fmt.Sprintf("the engine of table %s is %s, which has no transactions", table, name), "ALTER TABLE "+table+" ENGINE = InnoDB")
	default: // no table
		return find(persistence.ErrSchema, table+" is no table, but a view or the like, which may hide rows", "put the table back under its name, or choose another prefix")
	}
}

// rowSecurity refuses to read from a table of which the user may see a part: a
// dispatcher would pass the rows that it does not see.
func rowSecurity(table, policies string) error {
	if policies != "" {
		policies = " (policies: " + policies + ")"
	}
	return persistence.Finding{
		Severity: persistence.SeverityError, Kind: persistence.ErrPrivilege,
		Problem: fmt.Sprintf("row-level security may hide rows of table %s from the user%s", table, policies),
		Remedy: fmt.Sprintf("give dispatchers and retention a user of their own, by ALTER ROLE ... BYPASSRLS or as the table's owner without FORCE ROW LEVEL SECURITY, or ALTER TABLE %s DISABLE ROW LEVEL SECURITY",
			table),
	}
}
