package outbox_test

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/schema"
)

var (
	createTable = regexp.MustCompile(`(?s)CREATE TABLE (?:IF NOT EXISTS )?(?:\{schema\})?"?\{prefix\}(outbox\w*)"? \((.*?)(?:\n\)|\);)`)
	column      = regexp.MustCompile(`(?m)^\s*([a-z_]+) +[A-Za-z]`)
	// alterTable and addColumn are how a later migration adds columns.
	alterTable = regexp.MustCompile(`ALTER TABLE (?:\{schema\})?"?\{prefix\}(outbox\w*)"?\s+(ADD COLUMN [^;]+);`)
	addColumn  = regexp.MustCompile(`ADD COLUMN ([a-z_]+)`)
	cell       = regexp.MustCompile("(?m)^\\| (`[^|]+) \\|")
)

// The reference names every table and every column, and no others.
func TestDocsNameEveryColumn(t *testing.T) {
	want := map[string]map[string]bool{}
	files, err := fs.Glob(schema.Files, "*/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := fs.ReadFile(schema.Files, file)
		require.NoError(t, err)
		tables := createTable.FindAllStringSubmatch(string(text), -1)
		require.True(t, len(tables) > 7 || !strings.Contains(file, "0001"), file)
		for _, table := range alterTable.FindAllStringSubmatch(string(text), -1) {
			for _, added := range addColumn.FindAllStringSubmatch(table[2], -1) {
				want[table[1]][added[1]] = true
			}
		}
		for _, table := range tables {
			if want[table[1]] == nil {
				want[table[1]] = map[string]bool{}
			}
			for _, c := range column.FindAllStringSubmatch(table[2], -1) {
				want[table[1]][c[1]] = true
			}
		}
	}
	for table, columns := range want {
		_, section, found := strings.Cut(prose(t, "docs/schema.md"), "\n## "+table+"\n")
		require.True(t, found, table)
		section, _, _ = strings.Cut(section, "\n## ")
		named := map[string]bool{}
		for _, row := range cell.FindAllStringSubmatch(section, -1) {
			for _, name := range span.FindAllStringSubmatch(row[1], -1) {
				named[name[1]] = true
			}
		}
		require.Equal(t, slices.Sorted(maps.Keys(columns)), slices.Sorted(maps.Keys(named)), table)
	}
}
