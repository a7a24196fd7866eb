package sqlstore

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// need is a statement that a role runs, and what it is for.
type need struct {
	purpose   string
	statement string // the name of its field
	only      string // if not every application does it: which one
}

const (
	always  = ""
	forKeys = "if its events have dedup keys"
	byHand  = "if operators do that with this user"
)

// needs are the statements of each role, of which the server is asked whether the
// user may run them: those that between them take all the privileges. Statements of
// nothing but SELECT on a table are named once for it.
var needs = map[persistence.Role][]need{
	persistence.RoleProducer: {
		{"read the version of the tables", "SchemaVersions", always},
		{"publish", "AppendRecord", always},
		{"reserve dedup keys", "ReserveKeys", forKeys},
		{"give dedup keys back", "ReleaseKeys", forKeys},
		{"find dedup keys", "TakenKeys", forKeys},
	},
	persistence.RoleDispatcher: {
		{"read the version of the tables", "SchemaVersions", always},
		{"read events", "NextEvent", always},
		{"write markers", "RecordMarker", always},
		{"read markers", "AppliedMarkers", always},
		{"read cursors", "ListCursors", always},
		{"make a cursor", "CreateCursor", always},
		{"lock a cursor", "LockCursor", always},
		{"take the lease", "AcquireLease", always},
		{"read subscriptions", "ListSubscriptions", always},
		{"register subscriptions", "RegisterSubscriptions", always},
		{"move subscriptions", "MoveSubscription", always},
		{"forget subscriptions", "ForgetSubscription", always},
		{"save counts", "SaveCounts", always},
		{"read counts", "LoadCounts", always},
		{"forget counts", "ForgetCounts", always},
		{"read failures", "LoadAttempts", always},
		{"record failures", "RecordFailure", always},
		{"forget failures", "SettleAttempts", always},
		{"write dead letters", "AddDeadLetter", always},
		{"read dead letters", "GetDeadLetter", always},
		{"move dead letters", "MoveDeadLetter", always},
		{"forget dispatchers", "ForgetCursor", byHand},
		{"keep tokens", "KeepToken", byHand},
		{"purge dead letters", "PurgeDeadLetters", byHand},
	},
	persistence.RoleRetention: {
		{"read the version of the tables", "SchemaVersions", always},
		{"look for owed events", "NextEvent", always},
		{"read cursors", "ListCursors", always},
		{"read subscriptions", "ListSubscriptions", always},
		{"free dedup keys", "PurgeKeys", forKeys},
		{"forget events", "ForgetEvents", always},
		{"forget markers", "ForgetMarkers", always},
	},
}

// lack is something that the user may not do, as the server puts it, and what it is
// needed for.
type lack struct {
	role     persistence.Role
	said     string
	purposes []string
	only     string
}

// checkPrivileges asks the server to explain the statements that the roles run: it
// runs none of them, and refuses those that the user may not run.
func (v *validation) checkPrivileges() error {
	if v.s.cfg.Dialect.lacksPrivilege == nil {
		return nil
	}
	for _, role := range v.roles {
		for _, n := range needs[role] {
			err := v.explain(n)
			if err != nil && !v.lacks(err, role, n) {
				return fmt.Errorf("explain how to %s: %w", n.purpose, err)
			}
		}
	}
	for _, role := range []persistence.Role{persistence.RoleDispatcher, persistence.RoleRetention} {
		// The mark waits for the clock, which stands still in a session that is refused
		// for its timestamp.
		if !v.has(role) || errors.Is(v.Err(), persistence.ErrUnsupported) {
			continue
		}
		// MySQL explains a read that locks to those who may not lock.
		_, err := v.s.mark(v.ctx, v.conn, &v.s.sql)
		if err != nil && !v.lacks(err, role, need{purpose: "read the safe mark"}) {
			return fmt.Errorf("read the safe mark: %w", err)
		}
	}
	if !v.has(persistence.RoleRetention) {
		return nil
	}
	return v.conn.Query(v.ctx, v.s.sql.LackedByRetention, nil, func(scan func(...any) error) error {
		var table, privilege string
		err := scan(&table, &privilege)
		v.lack(persistence.RoleRetention, "no "+privilege+" on "+table, need{purpose: "make and drop partitions"})
		return err
	})
}

// explain has a statement explained; not every database has it.
func (v *validation) explain(n need) error {
	text := reflect.ValueOf(v.s.sql).FieldByName(n.statement).String()
	if text == "" {
		return nil
	}
	return v.conn.Query(v.ctx, "EXPLAIN "+strings.TrimSpace(text), dummies(text), func(func(...any) error) error { return nil })
}

var argument = regexp.MustCompile(`(LIMIT )?[$?]([0-9]+)`)

// dummies returns arguments for a statement that is not run: NULL, or a number for
// a limit.
func dummies(statement string) []any {
	var args []any
	for _, m := range argument.FindAllStringSubmatch(statement, -1) {
		n, _ := strconv.Atoi(m[2]) // digits
		for len(args) < n {
			args = append(args, nil)
		}
		if m[1] != "" {
			args[n-1] = 1
		}
	}
	return args
}

// lacks notes what the user may not do, and reports whether the error says so.
func (v *validation) lacks(err error, role persistence.Role, n need) bool {
	refused := v.s.cfg.Dialect.lacksPrivilege
	if err == nil || refused == nil || !inChain(err, refused) {
		return false
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner // to what the server says
	}
	v.lack(role, err.Error(), n)
	return true
}

func (v *validation) lack(role persistence.Role, said string, n need) {
	i := slices.IndexFunc(v.lacking, func(l lack) bool { return l.role == role && l.said == said && l.only == n.only })
	if i < 0 {
		i = len(v.lacking)
		v.lacking = append(v.lacking, lack{role: role, said: said, only: n.only})
	}
	if l := &v.lacking[i]; !slices.Contains(l.purposes, n.purpose) {
		l.purposes = append(l.purposes, n.purpose)
	}
}

// tellLacks makes a finding of each.
func (v *validation) tellLacks() {
	for _, l := range v.lacking {
		problem := fmt.Sprintf("the user may not %s (%s)", strings.Join(l.purposes, ", "), l.said)
		if l.only != "" {
			v.warn(problem, fmt.Sprintf("grant it to the role %s, %s", l.role, l.only))
		} else {
			v.fail(persistence.ErrPrivilege, problem, fmt.Sprintf("grant what the role %s needs", l.role))
		}
	}
}
