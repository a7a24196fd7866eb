package outbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logged is what a program says: a level, unless it is chosen as it runs, and names
// of attributes.
type logged struct {
	level      string
	attributes []string
}

// sayings parses all Go files but tests, and returns what they log by message.
func sayings(t *testing.T) map[string]logged {
	t.Helper()
	var files []*ast.File
	functions := map[string]*ast.FuncDecl{}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && entry.Name() == "testdata" {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		files = append(files, file)
		return err
	}))
	for _, file := range files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && file.Name.Name == "events" {
				functions[f.Name.Name] = f
			}
		}
	}
	all := map[string]logged{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || called(call) != "LogAttrs" {
				return true
			}
			message, err := strconv.Unquote(call.Args[2].(*ast.BasicLit).Value) // constant, or this panics
			require.NoError(t, err)
			found := logged{}
			if level, ok := call.Args[1].(*ast.SelectorExpr); ok {
				found.level = strings.ToUpper(strings.TrimPrefix(level.Sel.Name, "Level"))
			}
			for _, arg := range call.Args[3:] {
				found.attributes = append(found.attributes, attributes(arg, functions)...)
			}
			if known, twice := all[message]; twice {
				require.ElementsMatch(t, known.attributes, found.attributes, message)
			}
			all[message] = found
			return true
		})
	}
	return all
}

// called returns the last name of what is called.
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// attributes returns the names in an expression, and those in the functions that it
// calls.
func attributes(n ast.Node, functions map[string]*ast.FuncDecl) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok {
			if of, ok := f.X.(*ast.Ident); ok && of.Name == "slog" {
				name, _ := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
				names = append(names, name)
				return false
			}
		}
		if name := called(call); strings.HasPrefix(name, "about") {
			names = append(names, attributes(functions[name].Body, functions)...)
		}
		return true
	})
	return names
}

var logLine = regexp.MustCompile("(?m)^\\| ([A-Z]+) \\| `(outbox: [^`]+)` \\| ([a-z_, ]+) \\|$")

// What is logged is in the table, and nothing else is; none of it is a payload.
func TestDocsListEachLogMessage(t *testing.T) {
	page, err := os.ReadFile("docs/observability.md")
	require.NoError(t, err)
	documented := map[string]logged{}
	for _, m := range logLine.FindAllStringSubmatch(string(page), -1) {
		documented[m[2]] = logged{m[1], strings.Split(m[3], ", ")}
	}
	said := sayings(t)
	require.Greater(t, len(said), 10)
	for message, s := range said {
		require.True(t, strings.HasPrefix(message, "outbox: "), message)
		d, found := documented[message]
		require.True(t, found, "the table lacks %q", message)
		require.ElementsMatch(t, d.attributes, s.attributes, message)
		if s.level != "" {
			require.Equal(t, d.level, s.level, message)
		}
		require.False(t, slices.Contains(s.attributes, "payload"))
	}
	for message := range documented {
		require.Contains(t, said, message, "nobody says so")
	}
}
