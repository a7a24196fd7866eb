package matrix

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/servers"
)

// marks notes when the safe mark is asked for, and after how many deliveries.
type marks struct {
	mu         sync.Mutex
	deliveries int
	asked      []mark
}

type mark struct {
	at         time.Time
	deliveries int
}

func (m *marks) watch() func(string) string {
	delivers := false
	return func(text string) string {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case text == "BEGIN":
			delivers = false
		case isMarker(text):
			delivers = true
		case text == "COMMIT" && delivers:
			m.deliveries++
		case strings.Contains(text, "pg_locks"), strings.Contains(text, "SKIP LOCKED"):
			m.asked = append(m.asked, mark{time.Now(), m.deliveries})
		}
		return text
	}
}

// A delivery is four statements: BEGIN, the marker, the handler's own, COMMIT.
// All else is shared by a batch, or by what is delivered in 200 ms.
func TestADeliveryCostsItsOwnStatements(t *testing.T) {
	const (
		backlog, aggregates, batch = 1000, 100, 100
		// Reading the window and the markers.
		reading = 2
		// Asking for the mark, reading, saving.
		saving = 4
		// Looking at tables, session and subscriptions, taking the lease, loading what
		// is known, a first audit, some reads that find nothing, the release.
		term = 60
	)
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var marks marks
			db, tap := openTapped(t, s, servers.CreateDatabase(t, servers.Get(t, s.Kind)), marks.watch)
			f := newFaulty(t, db)
			require.NoError(t, f.outbox.Atomically(t.Context(), func(ctx context.Context) error {
				var all []events.Event
				for n := range backlog {
					all = append(all, events.Event{Type: "t", AggregateType: "a", AggregateID: strconv.Itoa(n % aggregates)})
				}
				return events.NewPublisher(f.outbox).Publish(ctx, all...)
			}))
			tap.take()
			f.deliver(t, backlog, batch)
			counts := tap.take()

			others, markers := 0, 0
			for text, n := range counts {
				switch {
				case isMarker(text): // by one statement or another: a server with lax durability is asked for more
					markers += n
				case text == "BEGIN", text == "COMMIT", strings.Contains(text, "INSERT INTO changes"):
					require.GreaterOrEqual(t, n, backlog, text)
					others += n - backlog
				default:
					others += n
				}
			}
			require.GreaterOrEqual(t, markers, backlog)
			others += markers - backlog
			require.LessOrEqual(t, others, term+reading*backlog/batch+saving*len(marks.asked), report(counts))
			early := 0
			for i, m := range marks.asked[1:] {
				last := marks.asked[i]
				// What was being committed at the last mark is settled after it.
				if m.at.Sub(last.at) < 200*time.Millisecond && m.deliveries-last.deliveries < batch-events.DefaultConcurrency {
					early++
				}
			}
			require.LessOrEqual(t, early, 2, "beside those of the first audit")
		})
	}
}

// deliver has a dispatcher deliver what is there, all of it in one term.
func (f faulty) deliver(t *testing.T, backlog, batch int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := events.NewDispatcher(f.outbox, f.outbox, f.outbox, f.outbox, events.WithLease(time.Hour))
	var handled atomic.Int64
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
		if handled.Add(1) == int64(backlog) {
			defer cancel()
		}
		return gormtx.Tx(ctx).Exec("INSERT INTO changes (id) VALUES (?)", evt.ID).Error
	}))
	require.NoError(t, d.Poll(ctx, time.Second, batch, func(err error) { t.Error(err) }))
	require.EqualValues(t, backlog, handled.Load())
	var n int
	require.NoError(t, f.db.Raw("SELECT COUNT(*) FROM changes").Scan(&n).Error)
	require.Equal(t, backlog, n)
}

func isMarker(text string) bool {
	return strings.Contains(text, "INSERT INTO") && strings.Contains(text, "outbox_idempotency")
}

// report lists statements, for a test that has failed.
func report(counts map[string]int) string {
	var b strings.Builder
	for text, n := range counts {
		fmt.Fprintf(&b, "%5d %.120s\n", n, strings.Join(strings.Fields(text), " "))
	}
	return b.String()
}

// A dispatcher with nothing to do reads the window, and little else.
func TestAnIdleDispatcherCostsAtMostTwoStatementsAPoll(t *testing.T) {
	const polls = 50
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			db, tap := openTapped(t, s, servers.CreateDatabase(t, servers.Get(t, s.Kind)), unchanged)
			f := newFaulty(t, db)
			f.publish(t, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			d := events.NewDispatcher(f.outbox, f.outbox, f.outbox, f.outbox, events.WithLease(time.Hour))
			require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
			done := make(chan error)
			go func() { done <- d.Poll(ctx, 10*time.Millisecond, 100, nil) }()
			await := func(what string, reached func() bool) {
				t.Helper()
				require.Eventually(t, reached, time.Minute, 10*time.Millisecond, what)
			}
			await("the cursor is saved", func() bool {
				state, err := f.outbox.Load(t.Context(), events.DefaultName)
				return err == nil && state.Cursor.ID == "event-0"
			})
			tap.take()
			counts := map[string]int{}
			reads := func() (n int) {
				for text, n := range tap.take() {
					counts[text] += n
				}
				for text, k := range counts {
					if strings.Contains(text, "UNION ALL") {
						n += k
					}
				}
				return n
			}
			await("it polls", func() bool { return reads() >= polls })
			cancel()
			require.NoError(t, <-done)
			all := 0
			for _, n := range counts {
				all += n
			}
			require.LessOrEqual(t, all, 2*reads(), report(counts))
		})
	}
}
