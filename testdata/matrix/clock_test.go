package matrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

// clock is the database's, as the library's statements see it: it differs from
// the real one by an offset.
type clock struct{ offset atomic.Int64 }

func (c *clock) set(offset time.Duration) { c.offset.Store(offset.Microseconds()) }

var (
	postgresNow  = regexp.MustCompile(`\bnow\(\)`)
	postgresTime = regexp.MustCompile(`\b(clock|statement)_timestamp\(\)`)
	// NOW and SYSDATE are local, so they stand elsewhere only as a difference.
	mysqlTime = regexp.MustCompile(`\bUTC_TIMESTAMP\(6\)`)
	mysqlSlot = regexp.MustCompile(`\bUNIX_TIMESTAMP\(NOW\(6\)\)`)
)

// rewrite moves the times of one connection's statements. PostgreSQL's now() is
// what the clock showed when the transaction began.
func (c *clock) rewrite() func(string) string {
	began := int64(0)
	return func(text string) string {
		offset := c.offset.Load()
		if text == "BEGIN" {
			began = offset
		}
		if began != 0 {
			text = postgresNow.ReplaceAllString(text, fmt.Sprintf("($0 + %d * interval '1 microsecond')", began))
		}
		if offset != 0 {
			text = postgresTime.ReplaceAllString(text, fmt.Sprintf("($0 + %d * interval '1 microsecond')", offset))
			text = mysqlTime.ReplaceAllString(text, fmt.Sprintf("($0 + INTERVAL %d MICROSECOND)", offset))
			text = mysqlSlot.ReplaceAllString(text, fmt.Sprintf("($0 + %.6f)", float64(offset)/1e6))
		}
		return text
	}
}

// blind hides from the audit what the table holds.
type blind struct{ persistence.OutboxStore }

func (blind) CountRows(context.Context, time.Time, time.Time) ([]persistence.Bucket, error) {
	return nil, nil
}

// A clock that is set back stamps events behind the cursor. The audit finds
// them; without it they are lost.
func TestNothingIsLostWhenTheClockIsSetBack(t *testing.T) {
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		for name, steps := range map[string][]time.Duration{
			"by an hour":                  {-time.Hour},
			"by seconds, again and again": {-3 * time.Second, -7 * time.Second, -5 * time.Second},
		} {
			t.Run(s.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newSetBack(t, s)
				r.run(t, r.outbox, func() {
					r.produce(t, steps)
					require.Eventually(t, func() bool { lost, _ := r.count(t); return lost == 0 }, time.Minute, 50*time.Millisecond)
				})
				_, twice := r.count(t)
				require.Zero(t, twice)
				require.Positive(t, r.late.Load(), "nothing was stamped behind the cursor")
			})
			t.Run(s.Name+"/"+name+", without the audit", func(t *testing.T) {
				t.Parallel()
				r := newSetBack(t, s)
				r.run(t, blind{r.outbox}, func() {
					r.produce(t, steps)
					r.clock.set(0)
					r.pass(t)
				})
				lost, twice := r.count(t)
				require.Positive(t, lost)
				require.Zero(t, twice)
				require.Zero(t, r.late.Load())
			})
		}
	}
}

// setBack is an outbox on a server whose clock is set back.
type setBack struct {
	db     *gorm.DB
	clock  clock
	outbox *gormtx.Outbox
	late   atomic.Int64 // events that the audit has found

	mu        sync.Mutex
	committed []string
}

func newSetBack(t *testing.T, s Server) *setBack {
	r := &setBack{}
	r.db, _ = openTapped(t, s, servers.CreateDatabase(t, servers.Get(t, s.Kind)), r.clock.rewrite)
	r.outbox = gormtx.New(r.db)
	require.NoError(t, r.outbox.Migrate(t.Context()))
	for _, statement := range []string{
		"CREATE TABLE aggregates (id INT PRIMARY KEY, n INT NOT NULL)",
		"INSERT INTO aggregates VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)",
		"CREATE TABLE applied (id VARCHAR(64) NOT NULL)",
	} {
		require.NoError(t, r.db.Exec(statement).Error)
	}
	return r
}

// run has dispatchers deliver, one after the other, until the load has come to
// its end. A new one audits at once what the last one has not.
func (r *setBack) run(t *testing.T, store persistence.OutboxStore, load func()) {
	const life = 2 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			d := events.NewDispatcher(store, r.outbox, r.outbox, r.outbox)
			err := d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
				return gormtx.Tx(ctx).Exec("INSERT INTO applied VALUES (?)", evt.ID).Error
			})
			if err == nil {
				living, end := context.WithTimeout(ctx, life)
				err = d.Poll(living, 10*time.Millisecond, 100, func(err error) { t.Log(err) })
				end()
			}
			if err != nil {
				done <- err
			}
			r.late.Add(d.Stats().LateEvents)
		}
	}()
	defer func() {
		cancel()
		require.NoError(t, <-done)
	}()
	load()
}

// produce publishes while the clock is set back by each step, and right in
// between. It stays behind after the last one.
func (r *setBack) produce(t *testing.T, steps []time.Duration) {
	const producers, eventsPerStep = 4, 20
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_ = r.publish(ctx, fmt.Sprintf("%d-%d", p, n)) // what fails is not committed
				select {
				case <-ctx.Done():
				case <-time.After(rand.N(40 * time.Millisecond)):
				}
			}
		})
	}
	for _, step := range steps {
		r.clock.set(0)
		r.pass(t)
		r.clock.set(step)
		before := r.total()
		require.Eventually(t, func() bool { return r.total() >= before+eventsPerStep }, time.Minute, 10*time.Millisecond)
	}
	cancel()
	wg.Wait()
}

// pass waits until the cursor has passed what is there.
func (r *setBack) pass(t *testing.T) {
	mark, err := r.outbox.SafeMark(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.publish(t.Context(), events.NewID()))
	require.Eventually(t, func() bool {
		state, err := r.outbox.Load(t.Context(), events.DefaultName)
		return err == nil && state.Cursor.CreatedTime.After(mark.Now)
	}, time.Minute, 20*time.Millisecond)
}

func (r *setBack) publish(ctx context.Context, id string) error {
	aggregate := rand.N(6)
	err := r.outbox.Atomically(ctx, func(ctx context.Context) error {
		if err := gormtx.Tx(ctx).Exec("UPDATE aggregates SET n = n + 1 WHERE id = ?", aggregate).Error; err != nil {
			return err
		}
		return events.NewPublisher(r.outbox).Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: fmt.Sprint(aggregate)})
	})
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.committed = append(r.committed, id)
	}
	return err
}

func (r *setBack) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.committed)
}

// count returns how many events were not applied, and how many too often.
func (r *setBack) count(t *testing.T) (lost, twice int) {
	var ids []string
	require.NoError(t, r.db.Raw("SELECT id FROM applied").Scan(&ids).Error)
	applied := map[string]int{}
	for _, id := range ids {
		applied[id]++
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.committed {
		if applied[id] == 0 {
			lost++
		}
	}
	return lost, len(ids) - len(applied)
}

// The time of the next try is the database's. A clock that is set back does not
// make a new process wait for it longer than any back-off lasts.
func TestABackOffEndsThoughTheClockIsSetBack(t *testing.T) {
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r := newSetBack(t, s)
			require.NoError(t, r.publish(t.Context(), "event"))
			for _, fail := range []bool{true, false} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				d := events.NewDispatcher(r.outbox, r.outbox, r.outbox, r.outbox, events.WithBackoff(time.Second, time.Second))
				require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
					if fail {
						return errors.New("broken")
					}
					cancel()
					return nil
				}))
				require.NoError(t, d.Poll(ctx, 10*time.Millisecond, 100, func(error) { cancel() }))
				require.ErrorIs(t, ctx.Err(), context.Canceled)
				r.clock.set(-time.Hour)
			}
		})
	}
}
