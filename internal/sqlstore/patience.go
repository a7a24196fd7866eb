package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Whoever waits for an exclusive lock makes everybody who comes after it wait,
// too. So retention waits shortly at first, and longer each time, up to the
// lock timeout; in between it lets the others pass.
const (
	firstWait = 50 * time.Millisecond
	letPass   = 4 // times as long as it has waited
)

// patiently tries until it gets its locks on the tables. attempt waits for them no
// longer than it is told, and returns an error that the dialect takes for a lock
// timeout.
func (s *Store) patiently(ctx context.Context, conn Conn, limit time.Duration, attempt func(wait time.Duration) error, tables ...string) error {
	held, err := s.holders(ctx, conn, tables)
	if err != nil {
		return err
	}
	var timeout error
	for wait := min(firstWait, limit); ; wait = min(2*wait, limit) {
		stillHeld := held
		if len(held) > 0 || timeout != nil {
			if err := pause(ctx, letPass*wait); err != nil {
				return err
			}
			if stillHeld, err = s.holders(ctx, conn, tables); err != nil {
				return err
			}
		}
		// Who has held the table for so long will go on, a report for example:
		// nobody has to wait behind us for that.
		if !intersect(held, stillHeld) {
			timeout = attempt(wait)
			if timeout == nil || !s.cfg.Dialect.isLockTimeout(timeout) {
				return timeout
			}
		}
		held = stillHeld
		if wait == limit {
			return errors.Join(fmt.Errorf("%w: other sessions keep %s locked, by a long query or an open transaction; run it again", persistence.ErrLockTimeout, strings.Join(tables, " or ")), timeout)
		}
	}
}

// holders returns who has locked one of the tables, one name a transaction or
// statement; none where the server does not tell.
func (s *Store) holders(ctx context.Context, conn Conn, tables []string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, t := range tables {
		err := conn.Query(ctx, s.sql.TableHolders, []any{t}, func(scan func(...any) error) error {
			var name string
			err := scan(&name)
			found[name] = true
			return err
		})
		if err != nil && s.cfg.Dialect.hidesHolders != nil && s.cfg.Dialect.hidesHolders(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// calmly does again what another replica came in between of. Each step finds by
// itself what is left to do, and one of those that meet has always got on.
func (s *Store) calmly(ctx context.Context, step func() error) error {
	const most = 50
	for attempt := 1; ; attempt++ {
		err := step()
		if err == nil || s.cfg.Dialect.isRace == nil || !s.cfg.Dialect.isRace(err) || attempt == most {
			return err
		}
		if err := pause(ctx, rand.N(apart)); err != nil {
			return err
		}
	}
}

// apart is how far replicas that have met keep apart, at most.
const apart = 300 * time.Millisecond

func intersect(a, b map[string]bool) bool {
	for name := range a {
		if b[name] {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
