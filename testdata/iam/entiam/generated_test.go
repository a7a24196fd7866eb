package entiam_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	entgo "entgo.io/ent"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/iam/entiam/schema"
)

// graph is what ent makes of schemas.
func graph(t testing.TB, config gen.Config, schemas ...entgo.Interface) *gen.Graph {
	t.Helper()
	var err error
	config.Storage, err = gen.NewStorage("sql")
	require.NoError(t, err)
	config.IDType = &field.TypeInfo{Type: field.TypeString}
	var loaded []*load.Schema
	for _, s := range schemas {
		marshalled, err := load.MarshalSchema(s)
		require.NoError(t, err)
		l, err := load.UnmarshalSchema(marshalled)
		require.NoError(t, err)
		loaded = append(loaded, l)
	}
	graph, err := gen.NewGraph(&config, loaded...)
	require.NoError(t, err)
	return graph
}

func TestTheGeneratedCodeIsThatOfTheSchema(t *testing.T) {
	const this = "github.com/onward-go/outbox/testdata/iam/entiam"
	fresh := t.TempDir()
	require.NoError(t, graph(t, gen.Config{
		Schema:   this + "/schema",
		Package:  this + "/ent",
		Target:   fresh,
		Features: []gen.Feature{gen.FeatureExecQuery, gen.FeatureLock, gen.FeatureUpsert},
	}, schema.APIKey{}, schema.Outbox{}, schema.User{}).Gen())
	want, got := files(t, fresh), files(t, "ent")
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	for name, text := range want {
		if name == filepath.Join("runtime", "runtime.go") {
			continue // it names the version of ent, which a test does not know
		}
		require.True(t, text == got[name], "%s is of another schema: run go generate ./iam/entiam", name)
	}
}

// files returns the contents of all files in a directory.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel(dir, path)
		all[name] = string(text)
		return err
	}))
	return all
}
