package outbox_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/onward-go/outbox/"

// rooms says what each package may import beside the standard library: rooms
// below it, and other modules.
var rooms = map[string][]string{
	"persistence":         {},
	"schema":              {"persistence"},
	"internal/usercode":   {},
	"events":              {"persistence", "internal/usercode"},
	"memstore":            {"persistence"},
	"health":              {"persistence", "events", "internal/usercode"},
	"internal/sqlstore":   {"persistence", "schema", "internal/usercode"},
	"internal/pgpipeline": {"github.com/jackc/pgx"},
	"internal/stdsql":     {"persistence", "internal/sqlstore"},
	"internal/stdpgx":     {"internal/pgpipeline", "internal/stdsql", "github.com/jackc/pgx"},
	"sqltx/sqlpgx":        {"internal/face", "internal/stdpgx", "sqltx"},
	"internal/face":       {"persistence", "schema", "internal/sqlstore", "internal/stdsql"},
	"gormtx":              {"persistence", "schema", "internal/face", "internal/sqlstore", "internal/stdpgx", "internal/stdsql", "gorm.io/gorm"},
	"sqltx":               {"persistence", "schema", "internal/face", "internal/sqlstore", "internal/stdsql"},
	"pgxtx":               {"persistence", "schema", "internal/face", "internal/pgpipeline", "internal/sqlstore", "internal/usercode", "github.com/jackc/pgx"},
	"internal/blindstore": {"persistence"},
	"outboxtest":          {"persistence", "events", "internal/blindstore", "github.com/stretchr/testify"},
	"eventstest":          {"persistence", "events", "memstore"},
	"docs/guide":          {}, // examples alone
	"internal/facetest":   {"persistence", "outboxtest", "github.com/stretchr/testify"},
	"internal/gormtest":   {"internal/facetest", "gormtx", "outboxtest", "gorm.io/gorm", "github.com/stretchr/testify"},
	"internal/sqltest":    {"internal/facetest", "sqltx"},
	"internal/pgxtest":    {"internal/facetest", "pgxtx", "github.com/jackc/pgx"},
}

type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	return listIn(t, ".", args...)
}

// listIn lists packages of the module in a directory.
func listIn(t *testing.T, dir string, args ...string) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"-C", dir, "list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...).Output()
	require.NoError(t, err)
	var packages []listed
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}

func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func TestRoomsImportOnlyWhatIsBelowThem(t *testing.T) {
	for _, p := range list(t, "./...") {
		room, found := strings.CutPrefix(p.ImportPath, module)
		if !found {
			continue // the root, which has no code
		}
		allowed, known := rooms[room]
		require.True(t, known, "package %s has no entry in the table of rooms", room)
		for _, i := range p.Imports {
			below := slices.ContainsFunc(allowed, func(a string) bool {
				return i == module+a || i == a || strings.HasPrefix(i, a+"/")
			})
			require.True(t, standard(i) || below, "%s imports %s", room, i)
		}
	}
}

func TestCorePackagesPullInNothingButTheStandardLibrary(t *testing.T) {
	for _, room := range []string{"persistence", "events", "health", "memstore", "eventstest", "sqltx"} {
		for _, dep := range list(t, module+room)[0].Deps {
			require.True(t, standard(dep) || strings.HasPrefix(dep, module), "%s pulls in %s", room, dep)
		}
	}
}

// The operator's command has a module of its own, and goes through what every user
// has: it holds no SQL, and nothing of it gets into the library.
func TestRoomsOfTheCommandGoThroughThePublicFace(t *testing.T) {
	const command = "cmd/outboxctl"
	mine := []string{
		"sqltx", "persistence", "events", "schema",
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/jackc/pgx", "github.com/go-sql-driver/mysql", "modernc.org/sqlite",
	}
	packages := listIn(t, command, "./...")
	require.NotEmpty(t, packages)
	for _, p := range packages {
		for _, i := range p.Imports {
			allowed := slices.ContainsFunc(mine, func(a string) bool { return i == module+a || i == a || strings.HasPrefix(i, a+"/") })
			require.True(t, standard(i) || allowed || strings.HasPrefix(i, module+command+"/"), "%s imports %s", p.ImportPath, i)
		}
	}
	require.NoError(t, filepath.WalkDir(command, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, statement := range []string{"QueryContext", "ExecContext", "QueryRow", "SELECT ", "INSERT ", "UPDATE ", "DELETE "} {
			require.NotContains(t, string(text), statement, "SQL in %s", path)
		}
		return err
	}))
	root, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	require.NotContains(t, string(root), "cobra")
}
