package gormtest

import (
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
)

// Naming is where the tables of an outbox are.
type Naming facetest.Naming

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
func (n Naming) Table(name string) string { return facetest.Naming(n).Table(name) }
