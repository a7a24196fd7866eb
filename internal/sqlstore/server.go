package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// facts is what a server tells of itself: its version, as it puts it, and how
// it is set up, by name. What the server does not know is missing.
type facts map[string]string

// on reports whether a setting is on.
func (f facts) on(name string) bool { return strings.EqualFold(f[name], "ON") || f[name] == "1" }

// isolation is the session's, under its old name or its new one.
func (f facts) isolation() string { return cmp.Or(f["transaction_isolation"], f["tx_isolation"]) }

const mariaDB = "MariaDB"

// product is a kind of database and its version.
type product struct {
	name      string
	version   version
	isolation string // of the session, where it is asked for
}

func (p product) String() string { return p.name + " " + p.version.String() }

// atLeast refuses an older version, and says why.
func (p product) atLeast(oldest version, why string) error {
	if p.version.before(oldest) {
		return refuse("this is "+p.String()+", "+why, "use "+product{name: p.name, version: oldest}.String()+" or newer")
	}
	return nil
}

// version is a version's first three numbers.
type version [3]int

var versionNumber = regexp.MustCompile(`\d+(\.\d+){0,2}`)

// parseVersion reads the first number in text. Text without one is version 0.
func parseVersion(text string) (v version) {
	for i, digits := range strings.Split(versionNumber.FindString(text), ".") {
		v[i], _ = strconv.Atoi(digits)
	}
	return v
}

func (v version) String() string {
	text := strconv.Itoa(v[0])
	for i, n := range v[1:] {
		if n != 0 || v[2] != 0 && i == 0 {
			text += "." + strconv.Itoa(n)
		}
	}
	return text
}

func (v version) before(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// CheckServer asks the server who it is and how it is set up, and returns its
// name and version. A server that cannot keep the promises is refused with
// persistence.ErrUnsupported. It needs no privileges.
func (d *Dialect) CheckServer(ctx context.Context, conn Conn) (string, error) {
	p, err := d.checkServer(ctx, conn)
	if p == (product{}) {
		return "", err
	}
	return p.String(), err
}

func (d *Dialect) checkServer(ctx context.Context, conn Conn) (product, error) {
	p, err := d.describe(ctx, conn)
	if d.statements.ClockMoves == "" || p == (product{}) {
		return p, err
	}
	moves, near := false, int64(0)
	askErr := conn.Query(ctx, d.statements.ClockMoves, nil, func(scan func(...any) error) error {
		moves = true
		return scan(&near)
	})
	switch {
	case askErr != nil && err != nil: // whoever is refused need not know the statement
	case askErr != nil:
		err = askErr
	case !moves:
		err = errors.Join(err, refuse("the server runs with sysdate-is-now, which stamps events before they are fenced", "turn it off"))
	case near == 0:
		err = errors.Join(err, refuse("the session's timestamp is set, so events would be stamped with it", "set it to DEFAULT, or leave it out of the DSN"))
	}
	return p, err
}

// describe asks the server who it is, and how it and the session are set up, and
// refuses what will not do. It returns no product where it could not ask.
func (d *Dialect) describe(ctx context.Context, conn Conn) (product, error) {
	told, err := d.ask(ctx, conn)
	if err != nil {
		return product{}, err
	}
	p, err := d.judge(told)
	if err == nil && d.statements.ProbeFormat != "" && !told.standardFormat() && !d.reads(ctx, conn) {
		err = refuse(fmt.Sprintf("the session's DateStyle is %q and its bytea_output %s, which the driver cannot read in the mode that it is in", told["datestyle"], told["bytea_output"]),
			"leave them out of the DSN, or set them to ISO and hex")
	}
	return p, err
}

// ask returns what the server tells of itself and of the session.
func (d *Dialect) ask(ctx context.Context, conn Conn) (facts, error) {
	told := facts{}
	err := conn.Query(ctx, d.statements.DescribeServer, nil, func(scan func(...any) error) error {
		var name, value string
		err := scan(&name, &value)
		told[strings.ToLower(name)] = value
		return err
	})
	if other := answeredBy(err); other != "" && other != d.Name {
		return nil, fmt.Errorf("%w: %w", refuse(fmt.Sprintf("the outbox was made for the dialect %s, and the database that answers is one of %s", d.Name, other),
			"pass the dialect "+other), err)
	}
	if err != nil && d.refuses != nil {
		err = cmp.Or(d.refuses(err), err)
	}
	return told, err
}

// standardFormat reports whether a session writes times and bytes as all drivers read
// them.
func (f facts) standardFormat() bool {
	return strings.HasPrefix(f["datestyle"], "ISO") && f["bytea_output"] == "hex"
}

// reads reports whether the driver can read times and bytes of the session.
func (d *Dialect) reads(ctx context.Context, conn Conn) bool {
	var at time.Time
	var zero []byte
	err := conn.Query(ctx, d.statements.ProbeFormat, nil, func(scan func(...any) error) error { return scan(&at, &zero) })
	return err == nil && at.Equal(time.Date(2026, 3, 29, 1, 59, 59, 0, time.UTC)) && len(zero) == 1
}

// lookalike is a database that speaks another's protocol. It tells by a word in
// what it says of its version.
type lookalike struct{ word, name string }

func refuseLookalikes(text string, all []lookalike, lack, use string) error {
	text = strings.ToLower(text)
	for _, l := range all {
		if strings.Contains(text, strings.ToLower(l.word)) {
			return refuse("this is "+l.name+", "+lack, "use "+use)
		}
	}
	return nil
}

func judgePostgres(f facts) (product, error) {
	text := f["version"]
	p := product{name: "PostgreSQL", version: parseVersion(text)}
	err := refuseLookalikes(text, []lookalike{
		{"CockroachDB", "CockroachDB"},
		{"-YB-", "YugabyteDB"},
		{"Redshift", "Amazon Redshift"},
		{"Materialize", "Materialize"},
		{"RisingWave", "RisingWave"},
		{"Greenplum", "Greenplum"},
	}, "whose advisory locks do not fence events as PostgreSQL's do", "PostgreSQL 15 or newer")
	switch {
	case err != nil:
		return p, err
	case !strings.HasPrefix(text, "PostgreSQL "):
		return p, refuse(fmt.Sprintf("the server says it is %q", text), "use PostgreSQL 15 or newer")
	case f["advisory locks"] == "0":
		return p, refuse("this "+p.String()+" has no advisory locks, which fence events", "use PostgreSQL 15 or newer")
	}
	// SQL_ASCII converts nothing.
	if set := f["client_encoding"]; set != "" && set != "UTF8" && set != "SQL_ASCII" {
		err = refuse("the session's client_encoding is "+set+", so text is taken for other text than it is", "leave it out of the DSN, or set it to UTF8")
	}
	return p, errors.Join(p.atLeast(version{15}, "which the statements are not made for"), err)
}

func judgeSQLite(f facts) (product, error) {
	p := product{name: "SQLite", version: parseVersion(f["version"])}
	err := p.atLeast(version{3, 42}, "which lacks unixepoch with fractions of a second")
	if f.on("read_uncommitted") {
		err = errors.Join(err, refuse("read_uncommitted is on, so with a shared cache events would be delivered whose transaction rolls back", "leave the pragma out"))
	}
	return p, err
}

// judgeMySQL refuses what is known to break the fence, which is the lock on a
// row that a producer holds on the only server that is written to.
func judgeMySQL(f facts) (product, error) {
	text := f["version"] + " " + f["version_comment"]
	p := product{"MySQL", parseVersion(f["version"]), f.isolation()}
	oldest, why := version{8, 0, 16}, "which lacks SKIP LOCKED, JSON_TABLE or CHECK constraints"
	if strings.Contains(strings.ToLower(text), "mariadb") {
		// Proxies put 5.5.5- before it, for old clients.
		p.name, p.version = mariaDB, parseVersion(strings.TrimPrefix(f["version"], "5.5.5-"))
		oldest, why = version{10, 6}, "which lacks SKIP LOCKED or JSON_TABLE"
	}
	// Some are told by a variable that they alone have.
	for name, word := range map[string]string{"tidb_current_ts": "TiDB", "memsql_version": "SingleStore"} {
		if _, ok := f[name]; ok {
			text += " " + word
		}
	}
	err := refuseLookalikes(text, []lookalike{
		{"TiDB", "TiDB"},
		{"Vitess", "Vitess"},
		{"PlanetScale", "PlanetScale"},
		{"OceanBase", "OceanBase"},
		{"SingleStore", "SingleStore"},
		{"Dolt", "Dolt"},
	}, "whose row locks do not fence events as InnoDB's do", "MySQL or MariaDB")
	if limit, told := f["sql_select_limit"]; err == nil && (!told || limit != unlimited) {
		// It cuts this answer as well, so there is no more to judge by.
		return product{}, refuse("the session's sql_select_limit cuts what a query yields, and the cursor would pass the events beyond it",
			"leave it out of the DSN, or set it to DEFAULT")
	}
	if err == nil {
		err = p.atLeast(oldest, why)
	}
	if err != nil {
		return p, err
	}
	var all []error
	refused := func(what, remedy string) { all = append(all, refuse(p.String()+": "+what, remedy)) }
	for _, s := range mysqlSettings {
		if what := s.wrong(f); what != "" {
			refused(what, s.remedy)
		}
	}
	if provider := f["wsrep_provider"]; f.on("wsrep_on") && provider != "" && !strings.EqualFold(provider, "none") {
		refused("it is a node of a Galera cluster (wsrep_on), and locks do not reach the other nodes", "use a single primary with replicas")
	}
	if f["group_replication_group_name"] != "" && !f.on("group_replication_single_primary_mode") {
		refused("group replication has several primaries, and locks do not reach the others", "turn group_replication_single_primary_mode on")
	}
	// MIXED will do: a statement with SYSDATE is logged as rows.
	if f.on("log_bin") && strings.EqualFold(f["binlog_format"], "STATEMENT") {
		refused("binlog_format is STATEMENT, so a replica would stamp events anew", "set it to ROW or MIXED")
	}
	// A reader's lock would stay when its connection goes back to the pool.
	if strings.EqualFold(f["autocommit"], "OFF") || f["autocommit"] == "0" {
		refused("autocommit is off, so what runs outside of a transaction would open one", "turn it on, for the session or in the DSN")
	}
	if p.isolation == "READ-UNCOMMITTED" {
		refused("the session's isolation is READ UNCOMMITTED, so events would be delivered whose transaction rolls back", "use READ COMMITTED")
	}
	// Elsewhere text becomes question marks, or other text, without an error.
	for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
		set := f[name]
		if kept := name == "character_set_results" && strings.EqualFold(set, "binary"); set != "" && set != "utf8mb4" && !kept {
			refused("the connection's "+name+" is "+set+", which cannot hold all text", "put charset=utf8mb4 in the DSN")
		}
	}
	return p, errors.Join(all...)
}

// refuse returns why a server cannot keep the promises, and what to do.
func refuse(what, remedy string) error {
	return persistence.Finding{Severity: persistence.SeverityError, Problem: what, Remedy: remedy, Kind: persistence.ErrUnsupported}
}
