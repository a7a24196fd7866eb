package pgxtx

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onward-go/outbox/internal/face"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/internal/usercode"
	"github.com/onward-go/outbox/persistence"
)

// WakeOption configures a [Notifier] or [Listen]. Each [Option] is one, too: those
// that name the tables have to be the same at both ends, and the outbox's.
type WakeOption interface {
	applyToWake(*wakeConfig)
}

type wakeConfig struct {
	options []Option
	onError func(error)
	invalid error
}

func (o Option) applyToWake(c *wakeConfig) { c.options = append(c.options, o) }

type wakeOption func(*wakeConfig)

func (o wakeOption) applyToWake(c *wakeConfig) { o(c) }

// WithErrorHandler has handle called with what goes wrong on the way of a
// notification, one error at a time, on a goroutine of its own, so that it can stop
// nothing: [Listen] and [Notifier.Close] wait for it for at most a second before they
// return. Such an error costs no more than time, so
// nothing has to be done about it but to look into it if it persists. The default
// is to drop it.
func WithErrorHandler(handle func(error)) WakeOption {
	return wakeOption(func(c *wakeConfig) {
		if handle == nil {
			c.invalid = fmt.Errorf("pgxtx: %w: the error handler is nil", persistence.ErrInvalid)
			return
		}
		c.onError = handle
	})
}

// waking is one end of the channel of an outbox.
type waking struct {
	pool    *pgxpool.Pool
	table   string // the outbox, for messages
	channel string
	onError func(error)
	calls   *usercode.Calls // of the user's error handler
	invalid error
}

func newWaking(pool *pgxpool.Pool, opts []WakeOption) waking {
	c := wakeConfig{onError: func(error) {}}
	for i, opt := range opts {
		if opt == nil {
			c.invalid = face.NilOption("pgxtx", i)
			continue
		}
		opt.applyToWake(&c)
	}
	naming := face.New("pgxtx", c.options).Store(sqlstore.Postgres).Naming
	calls := usercode.NewCalls("the error handler", new(atomic.Int64), nil)
	onError := func(err error) { calls.Add(func() { c.onError(err) }) }
	w := waking{pool, naming.Outbox(), channel(naming.Outbox()), onError, calls, c.invalid}
	if w.invalid == nil {
		w.invalid = newStore(pool, c.options).Invalid()
	}
	return w
}

// failed says what failed, on which table.
func (w waking) failed(err error, what string) error {
	return fmt.Errorf("outbox table %s: %s: %w", w.table, what, err)
}

// maxChannel is the greatest length of a channel's name in bytes, as of all names.
const maxChannel = 63

// channel returns the name of the channel of an outbox table.
func channel(table string) string {
	name := "wake:" + table
	if len(name) <= maxChannel {
		return name
	}
	sum := sha256.Sum256([]byte(table))
	return "wake:" + hex.EncodeToString(sum[:16])
}
