package outbox_test

import (
	"go/types"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	span = regexp.MustCompile("`([^`]+)`")
	// chain is what a span of code begins with: Name, Type.Name, package.Type.Name.
	chain = regexp.MustCompile(`^&?([A-Za-z_]\w*)((?:\.[A-Z]\w*)*)(\(.*)?$`)
)

// variables are the names that pages and examples give to values.
var variables = map[string][]string{
	"outbox":     {"gormtx.Outbox", "sqltx.Outbox", "pgxtx.Outbox", "eventstest.Outbox"},
	"dispatcher": {"events.Dispatcher"},
	"d":          {"events.Dispatcher"},
	"publisher":  {"events.Publisher"},
	"letters":    {"events.DeadLetters"},
	"letter":     {"persistence.DeadLetter"},
	"faults":     {"eventstest.Faults"},
}

// foreign are the names that pages take from elsewhere: our internal packages,
// drivers, tools, other libraries, PostgreSQL's source.
var foreign = set(`
	Conn Session Server
	Get NamedExec Select
	Intercept RegisterTLSConfig StatementBegin StatementEnd
	FetchCooldown FetchPollInterval InsertTx JobCompleteTx MaxWorkers PollInterval TxFromContext
	CommitTransaction GetSnapshotData ProcArrayEndTransaction ProcArrayLock ResourceOwnerRelease
`)

func set(words string) map[string]bool {
	all := map[string]bool{}
	for _, word := range strings.Fields(words) {
		all[word] = true
	}
	return all
}

// api is the exported API of all packages.
type api map[string]*types.Package

// has reports whether a value of the type has a method or a field.
func (a api) has(of types.Object, name string) bool {
	found, _, _ := types.LookupFieldOrMethod(types.NewPointer(of.Type()), true, of.Pkg(), name)
	if found == nil {
		found, _, _ = types.LookupFieldOrMethod(of.Type(), true, of.Pkg(), name)
	}
	return found != nil && found.Exported()
}

// objects returns what is exported under a name, by any package.
func (a api) objects(name string) (all []types.Object) {
	for _, p := range a {
		if o := p.Scope().Lookup(name); o != nil && o.Exported() {
			all = append(all, o)
		}
	}
	return all
}

// anywhere reports whether a name is exported somewhere, be it as a method or a field.
func (a api) anywhere(name string) bool {
	if foreign[name] || len(a.objects(name)) > 0 || a[name] != nil {
		return true
	}
	for _, p := range a {
		for _, n := range p.Scope().Names() {
			o := p.Scope().Lookup(n)
			if _, isType := o.(*types.TypeName); isType && o.Exported() && a.has(o, name) {
				return true
			}
		}
	}
	return false
}

// resolves reports whether a chain of names means something that exists, or is
// not ours to know.
func (a api) resolves(first string, rest []string) bool {
	if p := a[first]; p != nil && len(rest) > 0 {
		o := p.Scope().Lookup(rest[0])
		return o != nil && o.Exported() && (len(rest) == 1 || a.has(o, rest[1]))
	}
	if types, isVariable := variables[first]; isVariable && len(rest) > 0 {
		for _, name := range types {
			pkg, typeName, _ := strings.Cut(name, ".")
			if a.has(a[pkg].Scope().Lookup(typeName), rest[0]) {
				return true
			}
		}
		return false
	}
	if first == strings.ToUpper(first) || strings.ToLower(first[:1]) == first[:1] || strings.HasPrefix(first, "Test") {
		return true // SQL, a word, something of another package, a test
	}
	if len(rest) == 0 {
		return a.anywhere(first)
	}
	for _, o := range a.objects(first) {
		if a.has(o, rest[0]) {
			return true
		}
	}
	return foreign[first]
}

// What a page calls by name in code exists.
func TestDocsNameSymbolsThatExist(t *testing.T) {
	exported := api(publicPackages(t))
	require.True(t, exported.resolves("events", []string{"Dispatcher", "Poll"}))
	for _, wrong := range [][]string{{"events", "Nothing"}, {"events", "Dispatcher", "Pol"}, {"Dispatcher", "Pol"}, {"outbox", "Poll"}, {"WithMaxAttempt"}} {
		require.False(t, exported.resolves(wrong[0], wrong[1:]), wrong)
	}
	names := 0
	for _, page := range pages(t) {
		for _, m := range span.FindAllStringSubmatch(prose(t, page), -1) {
			for _, code := range strings.Fields(strings.NewReplacer(",", " ", "(", " (", "*", "").Replace(m[1])) {
				parts := chain.FindStringSubmatch(code)
				if parts == nil {
					continue
				}
				var rest []string
				if parts[2] != "" {
					rest = strings.Split(parts[2][1:], ".")
				}
				if !exported.resolves(parts[1], rest) {
					t.Errorf("%s: there is no %s", page, m[1])
				}
				names++
			}
		}
	}
	require.Greater(t, names, 100)
}
