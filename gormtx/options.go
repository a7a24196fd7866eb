package gormtx

import (
	"time"

	"github.com/onward-go/outbox/internal/face"
	"github.com/onward-go/outbox/persistence"
)

// Option configures the stores. All constructors of one outbox take the same
// options.
type Option func(*config)

type config = face.Config

// WithTablePrefix puts a prefix before the name of each table: with "iam_" the
// outbox is iam_outbox. It is an identifier of up to 32 bytes.
func WithTablePrefix(prefix string) Option {
	return face.TablePrefix(prefix)
}

// WithSchema names the PostgreSQL schema that holds the tables, which need not
// be on the search path. The default is the first schema of the search path.
// Other databases refuse it with persistence.ErrInvalid.
func WithSchema(name string) Option {
	return face.Schema(name)
}

// WithBreakingMigrations lets [Migrate] apply a migration that replicas of the release
// before cannot live with: stop them first. Without it such a migration is refused with
// persistence.ErrSchema, which says what would become of them. Compatible migrations,
// and the first one on an empty database, need no leave.
func WithBreakingMigrations() Option {
	return face.BreakingMigrations()
}

// WithMaxPayload sets the greatest payload of an event, in bytes; at least 1.
// The default is 16 MiB.
func WithMaxPayload(bytes int) Option {
	return face.MaxPayload(bytes)
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
	return face.AsynchronousCommit()
}

// RetentionOption configures one run of retention. Each [Option] is one, too.
type RetentionOption interface {
	applyToRetention(*retentionConfig)
}

type retentionConfig = face.Retention[Option]

func (o Option) applyToRetention(c *retentionConfig) { c.Options = append(c.Options, o) }

type retentionOption func(*persistence.RetentionOptions)

func (o retentionOption) applyToRetention(c *retentionConfig) { o(&c.RetentionOptions) }

// WithDryRun makes retention report what it would do, and do nothing.
func WithDryRun() RetentionOption {
	return retentionOption(face.DryRun())
}

// WithNoConsumers says that nobody reads the outbox through a dispatcher, so
// that retention may drop events though no cursor has passed them.
func WithNoConsumers() RetentionOption {
	return retentionOption(face.NoConsumers())
}

// WithLockTimeout sets how long publishers and readers may have to wait for one
// statement of retention; 1ms to 24 hours. The default is
// [persistence.DefaultLockTimeout].
func WithLockTimeout(d time.Duration) RetentionOption {
	return retentionOption(face.LockTimeout(d))
}

// WithKeepKeys sets how long retention keeps dedup keys after they were reserved;
// greater than 0. The default is [persistence.DefaultKeepKeys], 30 days.
func WithKeepKeys(d time.Duration) RetentionOption {
	return retentionOption(face.KeepKeys(d))
}
