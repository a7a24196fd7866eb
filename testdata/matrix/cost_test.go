package matrix

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/servers"
)

// onTapped runs a test on each server whose statements can be counted.
func onTapped(t *testing.T, test func(t *testing.T, f faulty, tap *tap)) {
	for _, s := range Servers {
		if s.Kind == nil || s.Again {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			db, tap := openTapped(t, s, servers.CreateDatabase(t, servers.Get(t, s.Kind)), unchanged)
			test(t, newFaulty(t, db), tap)
		})
	}
}

// A delivery is four statements: BEGIN, the marker, the handler's own, COMMIT.
// All else is shared by a batch, or by what is delivered in 200 ms.
func TestADeliveryCostsItsOwnStatements(t *testing.T) {
	const (
		backlog, aggregates, batch = 1000, 100, 100
		// Reading the window and the markers, asking for the mark, saving.
		// PostgreSQL saves by one statement, MySQL in a transaction of two.
		round, saveEvery = 8, 200 * time.Millisecond
		// Taking the lease, loading what is known, a first audit, the release.
		term = 35
	)
	onTapped(t, func(t *testing.T, f faulty, tap *tap) {
		require.NoError(t, f.outbox.Atomically(t.Context(), func(ctx context.Context) error {
			var all []events.Event
			for n := range backlog {
				all = append(all, events.Event{Type: "t", AggregateType: "a", AggregateID: strconv.Itoa(n % aggregates)})
			}
			return events.NewPublisher(f.outbox).Publish(ctx, all...)
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d := events.NewDispatcher(f.outbox, f.outbox, f.outbox, f.outbox, events.WithLease(time.Hour))
		var handled atomic.Int64
		require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error {
			if handled.Add(1) == backlog {
				defer cancel()
			}
			return gormtx.Tx(ctx).Exec("INSERT INTO changes (id) VALUES (?)", evt.ID).Error
		}))
		tap.take()
		began := time.Now()
		require.NoError(t, d.Poll(ctx, time.Second, batch, func(err error) { t.Error(err) }))
		rounds := backlog/batch + int(time.Since(began)/saveEvery)
		counts := tap.take()
		require.EqualValues(t, backlog, handled.Load())
		var n int
		require.NoError(t, f.db.Raw("SELECT COUNT(*) FROM changes").Scan(&n).Error)
		require.Equal(t, backlog, n)

		others := 0
		for text, n := range counts {
			switch {
			case text == "BEGIN", text == "COMMIT", strings.Contains(text, "INSERT INTO changes"), isMarker(text):
				require.GreaterOrEqual(t, n, backlog, text)
				others += n - backlog
			default:
				others += n
			}
		}
		require.LessOrEqual(t, others, term+round*rounds, report(counts))
	})
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
	onTapped(t, func(t *testing.T, f faulty, tap *tap) {
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
