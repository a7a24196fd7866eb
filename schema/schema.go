package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Files holds the migrations as <dialect>/<number>_<name>.sql. In them
// {schema} stands for the schema's qualifier, quoted and with its dot, or for
// nothing; {schema_name} for the schema's bare name; {prefix} for the tables'
// prefix. A line "-- statement" separates statements.
//
//go:embed mysql/*.sql postgres/*.sql sqlite/*.sql
var Files embed.FS

// Version is the schema version that this version of the library works with: the
// number of the last migration that breaks the release before it, which is the highest
// one in outbox_schema. Compatible migrations leave it as it is.
const Version = 1

// Dialects that have a folder in [Files].
const (
	Postgres = "postgres"
	MySQL    = "mysql" // and MariaDB
	SQLite   = "sqlite"
)

// Migration is one numbered file, rendered.
type Migration struct {
	Version int // its number
	Name    string
	// Breaks says what becomes of replicas of the release before, which cannot work
	// with the tables once it is applied. Empty: it is compatible. They go on, may be
	// restarted and rolled back to, and services may migrate before or after they are
	// deployed.
	Breaks     string
	Statements []string
}

// String names the migration, as its file is named.
func (m Migration) String() string { return fmt.Sprintf("%04d_%s", m.Version, m.Name) }

// Recorded is the row of outbox_schema that says that the migration is applied. The
// releases before read the highest one and want their own version, so a compatible
// migration has a negative one, and needs no table, and so no grant, of its own.
func (m Migration) Recorded() int {
	if m.Breaks == "" && m.Version > 1 {
		return -m.Version
	}
	return m.Version
}

// breaks begins the line in which a file says that the release before cannot work with
// the tables any more, and what becomes of its replicas.
const breaks = "-- breaks: "

// Render returns the migrations of a dialect with the names filled in, in the
// order in which to apply them. Each one records in the table outbox_schema that
// it is applied, which the library reads.
// The error is persistence.ErrInvalid for a name that is no identifier, and
// names an unknown dialect.
func Render(dialect string, naming Naming) ([]Migration, error) {
	if err := naming.Check(dialect); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(Files, dialect)
	if err != nil {
		return nil, fmt.Errorf("schema: unknown dialect %q", dialect)
	}
	var migrations []Migration
	for _, entry := range entries { // sorted by name, so by number
		number, name, _ := strings.Cut(strings.TrimSuffix(entry.Name(), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("schema: file %s has no number: %w", entry.Name(), err)
		}
		text, err := fs.ReadFile(Files, path.Join(dialect, entry.Name()))
		if err != nil {
			return nil, err
		}
		m := Migration{Version: version, Name: name}
		if first, _, _ := strings.Cut(string(text), "\n"); strings.HasPrefix(first, breaks) {
			m.Breaks = strings.TrimPrefix(first, breaks)
		}
		for statement := range strings.SplitSeq(naming.Expand(string(text)), "\n-- statement\n") {
			m.Statements = append(m.Statements, strings.TrimSpace(statement))
		}
		migrations = append(migrations, m)
	}
	return migrations, nil
}
