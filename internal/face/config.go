package face

import (
	"fmt"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/stdsql"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// Config is what the options of an outbox set.
type Config struct {
	naming     schema.Naming
	maxPayload int
	async      bool
	breaking   bool
	pipeline   stdsql.Pipeline
	invalid    error
}

// New applies the options of the named face.
func New[O ~func(*Config)](face string, opts []O) Config {
	c := Config{maxPayload: persistence.DefaultMaxPayload}
	for i, opt := range opts {
		if opt == nil {
			c.invalid = NilOption(face, i)
			continue
		}
		opt(&c)
	}
	return c
}

// NilOption is the error of an option that is nil.
func NilOption(face string, i int) error {
	return fmt.Errorf("%s: %w: option %d is nil", face, persistence.ErrInvalid, i)
}

// Store returns the core's part of what was set, for a database of this dialect.
func (c Config) Store(d *sqlstore.Dialect) sqlstore.Config {
	return sqlstore.Config{Dialect: d, Naming: c.naming, MaxPayload: c.maxPayload, AsynchronousCommit: c.async, BreakingMigrations: c.breaking, Invalid: c.invalid}
}

// Pipeline returns that of PostgreSQL's driver, or nil.
func (c Config) Pipeline(d *sqlstore.Dialect) stdsql.Pipeline {
	if d != sqlstore.Postgres {
		return nil
	}
	return c.pipeline
}

// Dialect returns the dialect of that name, or nil.
func Dialect(name string) *sqlstore.Dialect {
	for _, d := range []*sqlstore.Dialect{sqlstore.Postgres, sqlstore.MySQL, sqlstore.SQLite} {
		if d.Name == name {
			return d
		}
	}
	return nil
}

// TablePrefix puts a prefix before the name of each table.
func TablePrefix(prefix string) func(*Config) {
	return func(c *Config) { c.naming.Prefix = prefix }
}

// Schema names the schema that holds the tables.
func Schema(name string) func(*Config) {
	return func(c *Config) { c.naming.Schema = name }
}

// MaxPayload sets the greatest payload of an event.
func MaxPayload(bytes int) func(*Config) {
	return func(c *Config) { c.maxPayload = bytes }
}

// AsynchronousCommit has the transactions of handlers commit before they are on
// disk.
func AsynchronousCommit() func(*Config) {
	return func(c *Config) { c.async = true }
}

// Pipelined has transactions begin and end with other statements in one round trip.
func Pipelined(p stdsql.Pipeline) func(*Config) {
	return func(c *Config) { c.pipeline = p }
}

// BreakingMigrations lets Migrate apply what the release before cannot live with.
func BreakingMigrations() func(*Config) {
	return func(c *Config) { c.breaking = true }
}
