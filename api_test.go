package outbox_test

import (
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the files in api anew")

// publicPackages returns the packages that users import, as the compiler sees
// them, by name.
func publicPackages(t *testing.T) map[string]*types.Package {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...").Output()
	require.NoError(t, err)
	exports := map[string]string{} // the files of what the compiler has exported
	var public []string
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
		room, ours := strings.CutPrefix(path, module)
		if ours && !strings.HasPrefix(room, "internal/") && !strings.HasPrefix(room, "docs/") {
			public = append(public, path)
		}
	}
	compiled := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	packages := map[string]*types.Package{}
	for _, path := range public {
		p, err := compiled.Import(path)
		require.NoError(t, err)
		packages[p.Name()] = p
	}
	return packages
}

// The exported API is what the files in api say. A line that goes, or changes, may
// break a user.
func TestAPI(t *testing.T) {
	packages := publicPackages(t)
	for name, p := range packages {
		file := filepath.Join("api", name+".txt")
		now := apiOf(p)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(strings.Join(now, "\n")+"\n"), 0o644))
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err, "write it by: go test -run TestAPI . -update")
		before := strings.Split(strings.TrimSpace(string(text)), "\n")
		for _, line := range before {
			if !slices.Contains(now, line) {
				t.Errorf("%s: this breaks who uses it, see docs/versioning.md:\n- %s", file, line)
			}
		}
		for _, line := range now {
			if slices.Contains(before, line) {
				continue
			}
			if contract, _, isMethod := strings.Cut(line, " interface, "); isMethod && slices.Contains(before, contract+" interface") {
				t.Errorf("%s: this breaks who implements it, see docs/versioning.md:\n+ %s", file, line)
			} else {
				t.Errorf("%s: this is new; run go test -run TestAPI . -update, and name it in the changelog:\n+ %s", file, line)
			}
		}
	}
	files, err := filepath.Glob("api/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		require.Contains(t, packages, strings.TrimSuffix(filepath.Base(file), ".txt"), "the package of %s is gone", file)
	}
}

// apiOf returns the exported API of a package, a line each, sorted.
func apiOf(p *types.Package) []string {
	qualified := func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	}
	lines := map[string]bool{}
	add := func(format string, args ...any) { lines[fmt.Sprintf(format, args...)] = true }
	typeOf := func(t types.Type) string { return types.TypeString(unnamed(t), qualified) }
	for _, name := range p.Scope().Names() {
		object := p.Scope().Lookup(name)
		switch o := object.(type) {
		case *types.Const:
			if o.Exported() {
				add("const %s %s = %s", name, typeOf(o.Type()), o.Val())
			}
		case *types.Var:
			if o.Exported() {
				add("var %s %s", name, typeOf(o.Type()))
			}
		case *types.Func:
			if o.Exported() {
				add("func %s%s", name, strings.TrimPrefix(typeOf(o.Type()), "func"))
			}
		case *types.TypeName:
			if o.Exported() {
				addType(add, typeOf, o)
			}
		}
	}
	return slices.Sorted(maps.Keys(lines))
}

func addType(add func(string, ...any), typeOf func(types.Type) string, o *types.TypeName) {
	name := typeOf(o.Type())
	switch u := o.Type().Underlying().(type) {
	case *types.Struct:
		add("type %s struct", name)
		for i := range u.NumFields() {
			if f := u.Field(i); f.Exported() {
				add("type %s struct, %s", name, strings.TrimSpace(f.Name()+" "+typeOf(f.Type())+" "+u.Tag(i)))
			}
		}
	case *types.Interface:
		add("type %s interface", name)
		for m := range u.Methods() { // a further one breaks who implements it
			if m.Exported() {
				add("type %s interface, %s%s", name, m.Name(), strings.TrimPrefix(typeOf(m.Type()), "func"))
			} else {
				add("type %s interface, with methods that nobody else can have", name)
			}
		}
		return
	default:
		add("type %s %s", name, typeOf(u))
	}
	if o.IsAlias() {
		return
	}
	for selection := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
		m := selection.Obj()
		if !m.Exported() {
			continue
		}
		receiver := "*" + o.Name()
		if types.NewMethodSet(o.Type()).Lookup(m.Pkg(), m.Name()) != nil {
			receiver = o.Name()
		}
		add("method (%s) %s%s", receiver, m.Name(), strings.TrimPrefix(typeOf(selection.Type()), "func"))
	}
}

// unnamed returns a signature without the names of its parameters, which are
// nobody's concern.
func unnamed(t types.Type) types.Type {
	s, ok := t.(*types.Signature)
	if !ok {
		return t
	}
	tuple := func(from *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range from.Variables() {
			vars = append(vars, types.NewParam(token.NoPos, nil, "", unnamed(v.Type())))
		}
		return types.NewTuple(vars...)
	}
	if s.TypeParams().Len() > 0 { // which belong to one signature
		return s
	}
	return types.NewSignatureType(nil, nil, nil, tuple(s.Params()), tuple(s.Results()), s.Variadic())
}
