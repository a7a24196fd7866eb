package entiam_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	atlaspostgres "ariga.io/atlas/sql/postgres"
	atlas "ariga.io/atlas/sql/schema"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/iam/entiam/ent/outbox"
	entschema "github.com/onward-go/outbox/testdata/iam/entiam/schema"
)

// asTable returns the table that ent's view describes, as ent would create it
// under that name.
func asTable(t testing.TB, name string) *schema.Table {
	t.Helper()
	graph := graph(t, gen.Config{}, entschema.Outbox{})
	views, err := graph.Views()
	require.NoError(t, err)
	require.Len(t, views, 1)
	require.Equal(t, outbox.Table, views[0].Name)
	table := schema.NewTable(name)
	for _, column := range views[0].Columns {
		table.AddColumn(column)
	}
	for _, key := range []string{outbox.FieldCreatedTime, outbox.FieldID} {
		column, ok := table.Column(key)
		require.True(t, ok)
		table.PrimaryKey = append(table.PrimaryKey, column)
	}
	return table
}

// differences are what ent's migration would change to have the table be what
// is wanted.
func (db database) differences(t testing.TB, want *schema.Table) (changes []atlas.Change) {
	t.Helper()
	compared := false
	record := func(next schema.Differ) schema.Differ {
		return schema.DiffFunc(func(current, desired *atlas.Schema) ([]atlas.Change, error) {
			require.Len(t, current.Tables, 1)
			for _, table := range []*atlas.Table{current.Tables[0], desired.Tables[0]} {
				leaveColumnsAndKeys(table)
				if db.dialect == dialect.SQLite {
					sortKey(table) // ent does not read it there; db.columns does
				}
			}
			found, err := next.Diff(current, desired)
			for _, change := range found {
				modified, ok := change.(*atlas.ModifyTable)
				require.True(t, ok, "%T", change)
				changes = append(changes, modified.Changes...)
			}
			compared = true
			return nil, err
		})
	}
	migration, err := schema.NewMigrate(entsql.OpenDB(db.dialect, db.pool),
		schema.WithDropColumn(true), schema.WithDropIndex(true), schema.WithDiffHook(record))
	require.NoError(t, err)
	require.NoError(t, migration.Create(t.Context(), want))
	require.True(t, compared)
	return changes
}

// leaveColumnsAndKeys removes what is for those who write the table, or what
// ent has no words for: defaults, checks, partitions, and how text compares.
func leaveColumnsAndKeys(table *atlas.Table) {
	remove := func(attrs []atlas.Attr) []atlas.Attr {
		return slices.DeleteFunc(attrs, func(a atlas.Attr) bool {
			switch a.(type) {
			case *atlas.Check, *atlas.Charset, *atlas.Collation, *atlaspostgres.Partition:
				return true
			}
			return false
		})
	}
	table.Attrs = remove(table.Attrs)
	for _, column := range table.Columns {
		column.Default = nil
		column.Attrs = remove(column.Attrs)
	}
}

// sortKey forgets the order of a primary key's columns.
func sortKey(table *atlas.Table) {
	parts := table.PrimaryKey.Parts
	slices.SortFunc(parts, func(a, b *atlas.IndexPart) int { return strings.Compare(a.C.Name, b.C.Name) })
	for i, part := range parts {
		part.SeqNo = i
	}
}

func TestEntsSchemaIsThatOfTheMigration(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		for _, c := range db.differences(t, asTable(t, outbox.Table)) {
			t.Errorf("%T %+v", c, c)
		}
	})
}

// The control: each difference shows.
func TestEntsSchemaWouldShowADifference(t *testing.T) {
	column := func(table *schema.Table, name string) *schema.Column {
		c, _ := table.Column(name)
		return c
	}
	for what, change := range map[string]func(table *schema.Table){
		"a column more": func(table *schema.Table) { table.AddColumn(&schema.Column{Name: "more", Type: field.TypeBool}) },
		"a column less": func(table *schema.Table) {
			table.Columns = slices.DeleteFunc(table.Columns, func(c *schema.Column) bool { return c.Name == "payload" })
		},
		"another name": func(table *schema.Table) { column(table, "payload").Name = "body" },
		"another type": func(table *schema.Table) {
			column(table, "account_id").SchemaType = nil
			column(table, "account_id").Type = field.TypeInt
		},
		"nullable":        func(table *schema.Table) { column(table, "payload").Nullable = true },
		"another key":     func(table *schema.Table) { table.PrimaryKey = table.PrimaryKey[1:] },
		"the key's order": func(table *schema.Table) { slices.Reverse(table.PrimaryKey) },
		"an index":        func(table *schema.Table) { table.AddIndex("by_type", false, []string{"event_type"}) },
		"a unique column": func(table *schema.Table) { column(table, "event_type").Unique = true },
	} {
		t.Run(what, func(t *testing.T) {
			everywhere(t, func(t *testing.T, db database) {
				if db.dialect == dialect.SQLite && what == "the key's order" {
					t.Skip("ent does not read it")
				}
				table := asTable(t, outbox.Table)
				change(table)
				require.NotEmpty(t, db.differences(t, table))
			})
		})
	}
}

// columns says how the database describes the columns of a table: name, type,
// nullability and place in the primary key.
func (db database) columns(t testing.TB, table string) (columns []string) {
	t.Helper()
	query := map[string]string{
		dialect.Postgres: `
SELECT concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, array_position(i.indkey::int2[], a.attnum))
FROM pg_attribute a JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = '%s'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`,
		dialect.MySQL: `
SELECT concat_ws(' ', c.column_name, c.column_type, c.is_nullable, k.ordinal_position)
FROM information_schema.columns c LEFT JOIN information_schema.key_column_usage k
ON k.constraint_name = 'PRIMARY' AND k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.column_name = c.column_name
WHERE c.table_schema = database() AND c.table_name = '%s' ORDER BY c.ordinal_position`,
		dialect.SQLite: `SELECT name || ' ' || lower(type) || ' ' || "notnull" || ' ' || pk FROM pragma_table_info('%s') ORDER BY cid`,
	}[db.dialect]
	rows, err := db.pool.QueryContext(t.Context(), fmt.Sprintf(query, table))
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var column string
		require.NoError(t, rows.Scan(&column))
		columns = append(columns, column)
	}
	require.NoError(t, rows.Err())
	return columns
}

// What ent would create is what the migration has created, as the database
// tells it.
func TestEntsColumnsAreThoseOfTheTable(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		const name = "outbox_of_ent"
		migration, err := schema.NewMigrate(entsql.OpenDB(db.dialect, db.pool))
		require.NoError(t, err)
		require.NoError(t, migration.Create(t.Context(), asTable(t, name)))

		columns := db.columns(t, outbox.Table)
		require.Equal(t, db.columns(t, name), columns)
		require.Len(t, columns, len(outbox.Columns))
		for i, column := range outbox.Columns {
			require.True(t, strings.HasPrefix(columns[i], column+" "), columns[i])
		}
	})
}
