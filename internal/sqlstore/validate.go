package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Validate implements persistence.Validator.
func (s *Store) Validate(ctx context.Context, roles ...persistence.Role) (persistence.Validation, error) {
	roles, err := persistence.CheckRoles(roles)
	if err != nil {
		return persistence.Validation{}, err
	}
	conn, err := s.unchecked(ctx, reading)
	if err != nil {
		return persistence.Validation{}, err
	}
	v := &validation{s: s, ctx: ctx, conn: conn, roles: roles}
	for _, step := range []func() error{v.checkServer, v.checkSession, v.checkTables} {
		if err := step(); err != nil {
			return v.Validation, s.failed(errors.Join(v.Err(), err), "validate") // what was found may be why
		}
		if v.Server == "" {
			break // nothing can be asked of whatever this is
		}
	}
	return v.Validation, s.failed(v.Err(), "validate")
}

// validation is one that goes on.
type validation struct {
	persistence.Validation
	s       *Store
	ctx     context.Context
	conn    Conn
	roles   []persistence.Role
	lacking []lack
}

func (v *validation) has(role persistence.Role) bool { return slices.Contains(v.roles, role) }

// note takes the findings out of an error, and returns what else it is.
func (v *validation) note(err error) error {
	if err == nil {
		return nil
	}
	found := false
	inChain(err, func(e error) bool {
		if f, ok := e.(persistence.Finding); ok {
			v.Findings = append(v.Findings, f)
			found = true
		}
		return false
	})
	if found {
		return nil
	}
	return err
}

func (v *validation) fail(kind error, problem, remedy string) {
	v.Findings = append(v.Findings, persistence.Finding{Severity: persistence.SeverityError, Problem: problem, Remedy: remedy, Kind: kind})
}

func (v *validation) warn(problem, remedy string) {
	v.Findings = append(v.Findings, persistence.Finding{Severity: persistence.SeverityWarning, Problem: problem, Remedy: remedy})
}

func (v *validation) checkServer() error {
	server, err := v.s.cfg.Dialect.checkServer(v.ctx, v.conn)
	if server != (product{}) {
		v.Server = server.String()
	}
	if server.tearsViews() {
		v.s.tornViews.Store(true)
	}
	if server.isolation == "SERIALIZABLE" {
		v.warn("the session's isolation is SERIALIZABLE, under which each SELECT of a transaction may be the victim of a deadlock; one whose caller swallows the error is not noticed",
			"use READ COMMITTED")
	}
	if err := v.note(err); err != nil || v.Server == "" {
		return err
	}
	return v.checkFile()
}

// checkFile looks at how a database is opened that is a file, or in memory.
func (v *validation) checkFile() error {
	d := v.s.cfg.Dialect
	if !d.OneWriter {
		return nil
	}
	told, err := d.ask(v.ctx, v.conn)
	if err != nil {
		return err
	}
	alone := v.s.cfg.MaxConnections() == 1
	if told["busy_timeout"] == "0" && !alone {
		v.warn("the session has no busy timeout, so whoever finds the database locked fails at once", "put busy_timeout into the DSN, of ten seconds or so")
	}
	if told["file"] != "" || alone {
		return nil
	}
	const remedy = "let the pool have one connection (SetMaxOpenConns(1), SetConnMaxLifetime(0)), or open a file, or a cache that the connections share"
	same, err := v.sameDatabase()
	switch {
	case err != nil:
		v.warn("the database is in memory, and the pool has several connections, each of which may have a database of its own", remedy)
	case !same:
		v.fail(persistence.ErrUnsupported, "the database is in memory, and each of the pool's connections has one of its own", remedy)
	}
	return nil
}

// sameDatabase reports whether two connections of the pool see the same tables. It
// returns an error where there are none to tell by, or no second connection.
func (v *validation) sameDatabase() (same bool, err error) {
	ctx, cancel := context.WithTimeout(v.ctx, 5*time.Second) // for a pool that is in use
	defer cancel()
	const tables = "SELECT count(*) FROM sqlite_master"
	count := func(n *int64, meanwhile func() error) error {
		return v.conn.Query(ctx, tables, nil, func(scan func(...any) error) error {
			if err := scan(n); err != nil {
				return err
			}
			return meanwhile()
		})
	}
	var first, second int64
	err = count(&first, func() error { return count(&second, func() error { return nil }) })
	if err == nil && first == 0 && second == 0 {
		err = persistence.ErrNotFound
	}
	return first == second, err
}

// clockSlack is how far the clocks of the process and the database may be apart
// before somebody should know.
const clockSlack = 2 * time.Second

// checkSession asks who answers, what time it is, and whether a time that is sent
// comes back as it was.
func (v *validation) checkSession() error {
	sent := time.Date(2026, 3, 29, 1, 59, 59, 123_456_000, time.UTC) // an hour that a change of the clock skips in places
	var back time.Time
	var primary, writable bool
	asked := time.Now()
	err := v.conn.Query(v.ctx, v.s.sql.ProbeSession, []any{v.s.at(sent)}, func(scan func(...any) error) error {
		return scan(timestamp{&v.Now}, &primary, &writable, timestamp{&back})
	})
	if err != nil {
		return fmt.Errorf("ask for the session: %w", err)
	}
	answered := time.Now()
	// It was read somewhere in between.
	v.ClockAhead = persistence.Seconds(v.Now.Sub(asked.Add(answered.Sub(asked) / 2)))
	if !primary {
		v.fail(persistence.ErrNotPrimary, "a standby answers, or a server that is read-only", "connect to the primary")
	} else if !writable {
		v.fail(persistence.ErrUnsupported, "the session is read-only", "turn the setting off, for the user or in the DSN: default_transaction_read_only, query_only")
	}
	if !back.Equal(sent) {
		v.fail(persistence.ErrUnsupported, fmt.Sprintf("a time comes back changed: %s as %s", sent.Format(time.RFC3339Nano), back.Format(time.RFC3339Nano)),
			"leave the driver's handling of time stamps as it is by default")
	}
	if apart := v.ClockAhead.Duration().Abs(); apart > clockSlack {
		v.warn(fmt.Sprintf("the clocks of this process and of the database are %s apart", apart.Round(time.Millisecond)),
			"synchronise them; delivery does not depend on it, but logs and the times in event ids mislead")
	}
	return nil
}

// checkTables looks at the tables, if they are there, and at what lies in them.
func (v *validation) checkTables() error {
	defer v.tellLacks()
	// MySQL hides tables from those who may do nothing with them, so who may not
	// read the version is told that, and not that there is none.
	version := need{purpose: "read the version of the tables", statement: "SchemaVersions"}
	h := ofNone
	switch {
	case v.has(persistence.RoleRetention):
		h = ofPartition
	case v.has(persistence.RoleDispatcher):
		h = ofParent
	}
	before := len(v.Findings)
	// A right that is missing for it is among those that are looked at below.
	if err := v.note(v.s.checkTables(v.ctx, v.conn, h)); err != nil && !errors.Is(err, persistence.ErrPrivilege) {
		return err
	}
	if !v.lacks(v.explain(version), v.roles[0], version) {
		if err := v.note(v.s.checkSchema(v.ctx, v.conn)); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(v.Findings[before:], func(f persistence.Finding) bool { return f.Kind == persistence.ErrSchema }) {
		return nil // the rest would say the same
	}
	if err := v.checkPrivileges(); err != nil {
		return err
	}
	if v.has(persistence.RoleDispatcher) || v.has(persistence.RoleRetention) {
		if err := v.checkPartitions(); err != nil {
			return err
		}
	}
	if v.has(persistence.RoleDispatcher) || v.has(persistence.RoleRetention) {
		if err := v.checkEvents(); err != nil {
			return err
		}
	}
	if v.has(persistence.RoleDispatcher) {
		return v.checkCursors()
	}
	return nil
}

// checkEvents looks for an event that is stamped far ahead of the clock. The database
// stamps events, so one was put there by hand, or its clock was wrong.
func (v *validation) checkEvents() error {
	var id, stamp string
	err := v.conn.Query(v.ctx, v.s.sql.EventAhead, nil, func(scan func(...any) error) error { return scan(&id, &stamp) })
	if v.lacks(err, v.roles[0], need{purpose: "read events"}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for events ahead of the clock: %w", err)
	}
	if id != "" {
		v.warn(fmt.Sprintf("table %s: event %q is stamped %s, more than an hour ahead of the database's clock: it was inserted by hand, or the clock was wrong", v.s.table, id, stamp),
			"leave created_time to the database; if the row was inserted by hand and no handler has had it, publish the event anew and have the owner of the tables delete the row; if the clock was wrong, wait until it has come there")
	}
	return nil
}

// checkPartitions warns before events go to the open-ended partition.
func (v *validation) checkPartitions() error {
	if v.s.cfg.Dialect.partitions == nil {
		return nil
	}
	for _, t := range []table{v.s.outboxTable(), v.s.markerTable()} {
		p, err := v.s.partitionStatus(v.ctx, v.conn, t, v.Now)
		switch {
		case errors.Is(err, persistence.ErrSchema):
			v.fail(persistence.ErrSchema, err.Error(), "retention cannot work until then")
			continue
		case v.lacks(err, v.roles[0], need{purpose: "look at the partitions"}):
			continue
		case err != nil:
			return err
		}
		if len(p.Detaching) > 0 {
			v.warn(fmt.Sprintf("table %s: the detach of partition %s has not come to its end, and nothing can be written to its range", t.name, p.Detaching[0]),
				"run retention, which ends it")
		}
		if !p.RefusesFrom.IsZero() {
			v.warn(fmt.Sprintf("table %s: a run of retention that was killed has left an end, from which on events are refused: %s", t.name, p.RefusesFrom.Format(time.DateOnly)),
				"run retention before then, which makes use of it or takes it back")
		}
		left, err := v.s.listMarked(v.ctx, v.conn, t, false)
		if err != nil {
			return err
		}
		for _, l := range left {
			v.warn(fmt.Sprintf("table %s was a partition of %s, and a former release has marked it to drop it", l.Name, t.name),
				"drop it, or take its comment off to keep it; retention leaves it alone")
		}
		if p.Through.Before(startOfMonth(v.Now, 2)) {
			v.warn(fmt.Sprintf("table %s has partitions up to %s; later events go to the open-ended one", t.name, p.Through.Format(time.DateOnly)),
				"run retention from a scheduler, once a day")
		}
	}
	return nil
}

// checkCursors looks for cursors that are ahead of the clock. SQLite stamps above
// them.
func (v *validation) checkCursors() error {
	if v.s.cfg.Dialect.OneWriter {
		return nil
	}
	states, err := v.s.listCursors(v.ctx, v.conn)
	if err != nil {
		if v.lacks(err, persistence.RoleDispatcher, need{purpose: "read cursors"}) {
			return nil
		}
		return err
	}
	for _, st := range states {
		if ahead := st.Cursor.CreatedTime.Sub(v.Now); ahead > clockSlack {
			v.warn(fmt.Sprintf("the cursor of dispatcher %q is %s ahead of the database's clock, so new events are found by the audit alone, late and out of order",
				st.Lease.Dispatcher, ahead.Round(time.Second)),
				"if the clock was set back, or a slower server has become the primary, wait until it has caught up; otherwise rewind the cursor")
		}
	}
	return nil
}
