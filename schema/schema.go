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

// Version is the schema version that this version of the library works with.
const Version = 1

// Dialects that have a folder in [Files].
const (
	Postgres = "postgres"
	MySQL    = "mysql" // and MariaDB
	SQLite   = "sqlite"
)

// Migration is one numbered file, rendered.
type Migration struct {
	Version    int
	Name       string
	Statements []string
}

// Render returns the migrations of a dialect with the names filled in, in the
// order in which to apply them. Each one records its version in the table
// outbox_schema, which the library reads.
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
		for statement := range strings.SplitSeq(naming.Expand(string(text)), "\n-- statement\n") {
			m.Statements = append(m.Statements, strings.TrimSpace(statement))
		}
		migrations = append(migrations, m)
	}
	return migrations, nil
}
