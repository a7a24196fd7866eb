package gormtx

import (
	"cmp"
	"fmt"
	"time"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// Option configures the stores. All constructors of one outbox take the same
// options.
type Option func(*config)

type config struct {
	naming     schema.Naming
	maxPayload int
	async      bool
	invalid    error
}

// WithTablePrefix puts a prefix before the name of each table: with "iam_" the
// outbox is iam_outbox. It is an identifier of up to 32 bytes.
func WithTablePrefix(prefix string) Option {
	return func(c *config) { c.naming.Prefix = prefix }
}

// WithSchema names the PostgreSQL schema that holds the tables, which need not
// be on the search path. The default is the first schema of the search path.
// Other databases refuse it with persistence.ErrInvalid.
func WithSchema(name string) Option {
	return func(c *config) { c.naming.Schema = name }
}

// WithMaxPayload sets the greatest payload of an event, in bytes; at least 1.
// The default is 16 MiB.
func WithMaxPayload(bytes int) Option {
	return func(c *config) { c.maxPayload = bytes }
}

// WithAsynchronousCommit has the transactions of handlers commit without waiting
// until they are on disk (synchronous_commit = off, on PostgreSQL). The cursor's
// save, once a batch, brings all of them there. That is faster where a flush takes
// long, and loses and doubles nothing: a server that crashes has a prefix of what
// was committed, so marker, effect and cursor are lost together, and applied again.
//
// But others may have seen an effect that a crash takes back until then, and so
// may hooks of [persistence.AfterCommit]. Producers' transactions stay as they are.
// Other databases refuse it with persistence.ErrInvalid.
func WithAsynchronousCommit() Option {
	return func(c *config) { c.async = true }
}

// RetentionOption configures one run of retention. Each [Option] is one, too.
type RetentionOption interface {
	applyToRetention(*retentionConfig)
}

type retentionConfig struct {
	options []Option
	persistence.RetentionOptions
}

func (o Option) applyToRetention(c *retentionConfig) { c.options = append(c.options, o) }

type retentionOption func(*persistence.RetentionOptions)

func (o retentionOption) applyToRetention(c *retentionConfig) { o(&c.RetentionOptions) }

// WithDryRun makes retention report what it would do, and do nothing.
func WithDryRun() RetentionOption {
	return retentionOption(func(o *persistence.RetentionOptions) { o.DryRun = true })
}

// WithNoConsumers says that nobody reads the outbox through a dispatcher, so
// that retention may drop events though no cursor has passed them.
func WithNoConsumers() RetentionOption {
	return retentionOption(func(o *persistence.RetentionOptions) { o.NoConsumers = true })
}

// WithLockTimeout sets how long publishers and readers may have to wait for one
// statement of retention; at least 1ms. The default is
// [persistence.DefaultLockTimeout].
func WithLockTimeout(d time.Duration) RetentionOption {
	return retentionOption(func(o *persistence.RetentionOptions) { o.LockTimeout = cmp.Or(d, -1) })
}

// WithKeepKeys sets how long retention keeps dedup keys after they were reserved;
// greater than 0. The default is [persistence.DefaultKeepKeys], 30 days.
func WithKeepKeys(d time.Duration) RetentionOption {
	return retentionOption(func(o *persistence.RetentionOptions) { o.KeepKeys = cmp.Or(d, -1) })
}

func newConfig(opts []Option) config {
	c := config{maxPayload: persistence.DefaultMaxPayload}
	for i, opt := range opts {
		if opt == nil {
			c.invalid = fmt.Errorf("gormtx: %w: option %d is nil", persistence.ErrInvalid, i)
			continue
		}
		opt(&c)
	}
	return c
}
