package gormtest

import "github.com/onward-go/outbox/gormtx"

// Naming is where the tables of an outbox are.
type Naming struct{ Schema, Prefix string }

// Options returns the naming as options of gormtx.
func (n Naming) Options() []gormtx.Option {
	var opts []gormtx.Option
	if n.Schema != "" {
		opts = append(opts, gormtx.WithSchema(n.Schema))
	}
	if n.Prefix != "" {
		opts = append(opts, gormtx.WithTablePrefix(n.Prefix))
	}
	return opts
}

// Table returns the qualified name of a table.
func (n Naming) Table(name string) string {
	if n.Schema != "" {
		return n.Schema + "." + n.Prefix + name
	}
	return n.Prefix + name
}

// quoted returns the qualified name of a table on PostgreSQL, quoted.
func (n Naming) quoted(name string) string {
	if n.Schema != "" {
		return `"` + n.Schema + `"."` + n.Prefix + name + `"`
	}
	return `"` + n.Prefix + name + `"`
}
