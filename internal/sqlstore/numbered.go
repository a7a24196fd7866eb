package sqlstore

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// numbered lets statements of MySQL number their arguments, ?1 and so on, as
// the other databases do, and use one more than once.
type numbered struct{ Conn }

func newNumbered(conn Conn) Conn { return numbered{conn} }

func (n numbered) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	c := positional(query)
	return n.Conn.Exec(ctx, c.text, c.order(args)...)
}

func (n numbered) Query(ctx context.Context, query string, args []any, row func(func(...any) error) error) error {
	c := positional(query)
	return n.Conn.Query(ctx, c.text, c.order(args), row)
}

// compiled is a statement with plain placeholders, and the argument of each.
type compiled struct {
	text      string
	arguments []int
}

func (c compiled) order(args []any) []any {
	ordered := make([]any, len(c.arguments))
	for i, a := range c.arguments {
		ordered[i] = args[a-1]
	}
	return ordered
}

var (
	placeholder = regexp.MustCompile(`\?[0-9]+`)
	// compilations holds a handful of statements for each outbox.
	compilations sync.Map
)

func positional(query string) compiled {
	if c, ok := compilations.Load(query); ok {
		return c.(compiled)
	}
	var c compiled
	c.text = placeholder.ReplaceAllStringFunc(query, func(p string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(p, "?")) // digits
		c.arguments = append(c.arguments, n)
		return "?"
	})
	compilations.Store(query, c)
	return c
}
