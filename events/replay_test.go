package events_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// bury writes dead letters of events of type "t", each of an aggregate of its own.
func bury(t *testing.T, store *memstore.Store, dispatcher, handler string, ids ...string) (letters []persistence.Marker) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, store.Create(ctx, dispatcher, persistence.Cursor{}))
	state, err := store.Load(ctx, dispatcher)
	require.NoError(t, err)
	require.NoError(t, store.Atomically(ctx, func(ctx context.Context) error {
		for _, id := range ids {
			letter := persistence.DeadLetter{
				Record: persistence.Record{
					ID: id, EventType: "t", AggregateType: "User", AggregateID: id, CreatedTime: time.Now().UTC().Truncate(time.Microsecond),
				},
				Dispatcher: dispatcher, Handler: handler, Attempts: 5, LastError: "before", State: persistence.DeadLetterDead,
			}
			letters = append(letters, letter.Marker())
			if err := store.AddDeadLetter(ctx, state.Lease, letter); err != nil {
				return err
			}
		}
		return nil
	}))
	return letters
}

func requeue(t *testing.T, store *memstore.Store, letters ...persistence.Marker) {
	t.Helper()
	for _, m := range letters {
		require.NoError(t, events.NewDeadLetters(store, store).Requeue(context.Background(), m))
	}
}

// wantLetter asserts what has become of a letter.
func wantLetter(t *testing.T, store *memstore.Store, m persistence.Marker, state persistence.DeadLetterState, attempts int, lastError string) {
	t.Helper()
	l, err := store.GetDeadLetter(context.Background(), m)
	require.NoError(t, err)
	require.Equal(t, state, l.State)
	require.Equal(t, attempts, l.Attempts)
	require.Contains(t, l.LastError, lastError)
}

func TestAReplayThatCannotBeIsRefused(t *testing.T) {
	store := memstore.New()
	var applied log
	mine := bury(t, store, events.DefaultName, "h", "a")[0]
	unknown := bury(t, store, events.DefaultName, "elsewhere", "c")[0]
	d := newDispatcher(t, store, applied.handler(nil))
	for _, refused := range []struct {
		letter persistence.Marker
		err    error
		says   string
	}{
		{unknown, persistence.ErrInvalid, `handler "elsewhere": invalid: the handler is not subscribed to "t" here`},
		{persistence.Marker{Event: mine.Event, Handler: "x"}, persistence.ErrNotFound, `handler "x"`},
	} {
		err := d.Replay(t.Context(), refused.letter)
		require.ErrorIs(t, err, refused.err)
		require.ErrorContains(t, err, refused.says)
	}
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, d.Replay(ctx, mine), persistence.ErrInTransaction)
		return nil
	}))
	broken := newDispatcher(t, store, applied.handler(nil), events.WithMaxAttempts(0))
	require.ErrorIs(t, broken.Replay(t.Context(), mine), persistence.ErrInvalid)
	require.Empty(t, applied.all())
	for _, m := range []persistence.Marker{mine, unknown} {
		wantLetter(t, store, m, persistence.DeadLetterDead, 5, "before")
	}
	// A process may poll meanwhile.
	requeue(t, store, mine)
	require.NoError(t, d.Replay(t.Context(), mine))
	require.Equal(t, []string{"a"}, applied.all())
}

func TestAReplaySpendsNoAttemptOnWhatIsNotTheEventsFault(t *testing.T) {
	store := memstore.New()
	m := bury(t, store, events.DefaultName, "h", "a")[0]
	var result error
	ctx, cancel := context.WithCancel(t.Context())
	d := newDispatcher(t, store, func(context.Context, events.Event) error {
		if result == nil {
			cancel()
		}
		return result
	})
	result = fmt.Errorf("update: %w", memstore.ErrDeadlock)
	require.ErrorIs(t, d.Replay(ctx, m), memstore.ErrDeadlock)
	wantLetter(t, store, m, persistence.DeadLetterDead, 5, "before")
	result = nil
	require.ErrorIs(t, d.Replay(ctx, m), context.Canceled)
	wantLetter(t, store, m, persistence.DeadLetterDead, 5, "before")
	result = events.Permanent(memstore.ErrDeadlock)
	require.ErrorIs(t, d.Replay(t.Context(), m), memstore.ErrDeadlock)
	wantLetter(t, store, m, persistence.DeadLetterDead, 6, "deadlock")
}

// endingCursors end a context when somebody else has moved the letter.
type endingCursors struct {
	persistence.OutboxCursorStore
	end func()
}

func (c endingCursors) MoveDeadLetter(ctx context.Context, move persistence.DeadLetterMove) error {
	defer c.end()
	return c.OutboxCursorStore.MoveDeadLetter(ctx, move)
}

func TestALostRaceIsToldAlsoWhenTheContextEnds(t *testing.T) {
	store := memstore.New()
	m := bury(t, store, events.DefaultName, "h", "a")[0]
	other := newDispatcher(t, store, func(context.Context, events.Event) error { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := events.NewDispatcher(store, endingCursors{store, cancel}, beforehand{store, func() {
		require.NoError(t, other.Replay(context.Background(), m))
	}}, store)
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return nil }))
	err := d.Replay(ctx, m)
	require.ErrorIs(t, err, events.ErrLetterState)
	require.NotErrorIs(t, err, persistence.ErrNotFound)
}

// beforehand lets something happen before each transaction.
type beforehand struct {
	persistence.Transactor
	happens func()
}

func (b beforehand) Atomically(ctx context.Context, fn func(context.Context) error) error {
	b.happens()
	return b.Transactor.Atomically(ctx, fn)
}

func TestAReplayThatTakesTooLongHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		m := bury(t, store, events.DefaultName, "h", "a")[0]
		requeue(t, store, m)
		start := time.Now()
		d := newDispatcher(t, store, func(ctx context.Context, _ events.Event) error {
			<-ctx.Done()
			return ctx.Err()
		}, events.WithHandlerTimeout(3*time.Second))
		require.ErrorIs(t, d.Replay(t.Context(), m), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))
		wantLetter(t, store, m, persistence.DeadLetterDead, 6, "timed out after 3s")
	})
}

func TestDeadLettersWithoutAStoreAreRefused(t *testing.T) {
	store := memstore.New()
	for _, o := range []*events.DeadLetters{events.NewDeadLetters(nil, store), events.NewDeadLetters(store, nil)} {
		_, err := o.List(t.Context(), persistence.DeadLetterQuery{Limit: 1})
		require.ErrorIs(t, err, persistence.ErrInvalid)
		_, err = o.Get(t.Context(), persistence.Marker{})
		require.ErrorIs(t, err, persistence.ErrInvalid)
		_, err = o.Purge(t.Context(), time.Now())
		require.ErrorIs(t, err, persistence.ErrInvalid)
		require.ErrorIs(t, o.Requeue(t.Context(), persistence.Marker{}), persistence.ErrInvalid)
		require.ErrorIs(t, o.Discard(t.Context(), persistence.Marker{}), persistence.ErrInvalid)
	}
}

// purges notes how much is purged at once.
type purges struct {
	*memstore.Store
	limits []int
}

func (p *purges) PurgeDeadLetters(ctx context.Context, before time.Time, limit int) (int, error) {
	p.limits = append(p.limits, limit)
	return p.Store.PurgeDeadLetters(ctx, before, limit)
}

func TestManyDeadLettersArePurgedInSmallTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &purges{Store: memstore.New()}
		o := events.NewDeadLetters(store, store)
		var ids []string
		for i := range 1200 {
			ids = append(ids, fmt.Sprint(i))
		}
		for _, m := range bury(t, store.Store, "d", "h", ids...) {
			require.NoError(t, o.Discard(t.Context(), m))
		}
		n, err := o.Purge(t.Context(), time.Now())
		require.NoError(t, err)
		require.Zero(t, n)
		time.Sleep(time.Second)
		n, err = o.Purge(t.Context(), time.Now())
		require.NoError(t, err)
		require.Equal(t, 1200, n)
		require.Equal(t, []int{500, 500, 500, 500}, store.limits)
	})
}
