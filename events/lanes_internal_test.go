package events

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// seeds is how many sequences are made of what handlers and the database do.
var seeds = flag.Uint64("seeds", 40, "how many sequences the lanes are tested with")

// Whatever handlers and the database do, each lane is in exactly one place, nothing
// that could run waits while a worker is free, and once all is well everything is
// delivered, in order and once.
func TestALaneIsInOnePlace(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newTrouble(t, seed).run() })
		})
	}
}

// trouble is a dispatcher whose handlers and transactions do anything.
type trouble struct {
	t       *testing.T
	store   *memstore.Store
	d       *Dispatcher
	effects *memstore.Table[string, int]
	size    int      // of the batches, and of much else
	types   []string // of the events, which take turns

	mu     sync.Mutex
	random *rand.Rand
	isOver bool
	wrong  []string
}

var troubleHandlers = map[string]struct{ batches, single int }{"t": {2, 2}, "u": {1, 1}, "v": {0, 1}, "w": {3, 0}}

func newTrouble(t *testing.T, seed uint64) *trouble {
	store := memstore.New()
	s := &trouble{
		t: t, store: store, effects: memstore.NewTable[string, int](store), random: rand.New(rand.NewPCG(seed, 0)),
	}
	s.size = 1 + s.random.IntN(12)
	s.types = [][]string{{"v"}, {"t", "u", "v", "w"}, {"t"}, {"v", "v", "v", "u"}}[s.random.IntN(4)]
	s.d = NewDispatcher(store, store, troubledTx{store, s}, store, WithConcurrency(1+s.random.IntN(4)), WithBatchSize(s.size),
		WithMaxAttempts(1000), WithBackoff(time.Duration(1+s.random.IntN(3000))*time.Millisecond, 3*time.Second))
	for eventType, n := range troubleHandlers {
		for i := range n.batches {
			name := fmt.Sprint(eventType, "-batch", i)
			require.NoError(t, s.d.SubscribeBatch(eventType, name, func(ctx context.Context, evts []Event) error { return s.handle(ctx, name, evts) }))
		}
		for i := range n.single {
			name := fmt.Sprint(eventType, "-single", i)
			require.NoError(t, s.d.Subscribe(eventType, name, func(ctx context.Context, evt Event) error { return s.handle(ctx, name, []Event{evt}) }))
		}
	}
	return s
}

// draw returns a number below n, or 0 once all is well.
func (s *trouble) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOver {
		return 0
	}
	return s.random.IntN(n)
}

// handle notes the effects of events, or does something else.
func (s *trouble) handle(ctx context.Context, name string, evts []Event) error {
	if outcome := s.draw(4); outcome == 3 {
		time.Sleep(time.Duration(s.draw(5000)) * time.Millisecond)
	}
	for _, evt := range evts {
		switch s.draw(12 + 4*len(evts)) {
		case 1, 2, 3:
			return errors.New("broken")
		case 4:
			panic("at the disco")
		case 5:
			runtime.Goexit()
		case 6:
			return s.store.FailCommit(ctx, errors.New("no commit"))
		}
		n, _ := s.effects.Get(ctx, name+evt.ID)
		if err := s.effects.Put(ctx, name+evt.ID, n+1); err != nil {
			return err
		}
	}
	return s.noteOrder(ctx, name, evts)
}

// noteOrder notes what is wrong with the order of what has been applied.
func (s *trouble) noteOrder(ctx context.Context, name string, evts []Event) error {
	for _, evt := range evts {
		n := 1 + number(evt)
		last, _ := s.effects.Get(ctx, "last"+name+evt.AggregateID)
		if last >= n {
			s.note("%s got %s after event e%d", name, evt.ID, last-1)
		}
		if err := s.effects.Put(ctx, "last"+name+evt.AggregateID, n); err != nil {
			return err
		}
	}
	if s.draw(4) > 0 { // so that its transaction can be held for the next one
		return nil
	}
	return persistence.AfterCommit(ctx, func(context.Context) {})
}

func number(evt Event) (n int) {
	_, _ = fmt.Sscanf(evt.ID, "e%d", &n)
	return n
}

func (s *trouble) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// troubledTx has transactions that cannot begin.
type troubledTx struct {
	*memstore.Store
	s *trouble
}

func (x troubledTx) Atomically(ctx context.Context, fn func(context.Context) error) error {
	if x.s.draw(10) == 9 {
		return errors.New("no connection")
	}
	return x.Store.Atomically(ctx, fn)
}

// Chain is the store's, so that what has one handler is tried in a chain.
func (x troubledTx) Chain(persistence.Transactor) persistence.Chain { return x.Store.Chain(x.Store) }

func (s *trouble) run() {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	published := s.publish(ctx, 0, s.draw(4*s.size))
	if s.draw(2) == 1 { // a process has ended, and nobody knows at what
		_, _ = s.d.RunOnce(ctx, 1+s.draw(20))
		_, err := s.store.Acquire(ctx, DefaultName, "dead", 0)
		require.NoError(s.t, err)
	}
	done := make(chan error, 1)
	go func() { done <- s.d.Poll(ctx, time.Second, 20, func(error) {}) }()
	for range 20 {
		if s.draw(2) == 1 {
			published = s.publish(ctx, published, s.draw(4*s.size))
		}
		time.Sleep(time.Duration(s.draw(4000)) * time.Millisecond)
		synctest.Wait()
		s.requireOnePlace()
	}
	s.mu.Lock()
	s.isOver = true
	s.mu.Unlock()
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	s.requireOnePlace()
	for i := range published {
		for eventType, n := range troubleHandlers {
			for h := range n.batches + n.single {
				name := fmt.Sprint(eventType, "-batch", h)
				if h >= n.batches {
					name = fmt.Sprint(eventType, "-single", h-n.batches)
				}
				want := 0
				if eventType == s.typeOf(i) {
					want = 1
				}
				got, _ := s.effects.Get(ctx, name+fmt.Sprint("e", i))
				require.Equal(s.t, want, got, "event e%d, handler %s", i, name)
			}
		}
	}
	require.Empty(s.t, s.wrong)
	cancel()
	require.NoError(s.t, <-done)
}

func (s *trouble) typeOf(i int) string { return s.types[i%len(s.types)] }

func (s *trouble) publish(ctx context.Context, from, n int) int {
	pub := NewPublisher(s.store)
	require.NoError(s.t, s.store.Atomically(ctx, func(ctx context.Context) error {
		for i := from; i < from+n; i++ {
			evt := Event{ID: fmt.Sprint("e", i), Type: s.typeOf(i), AggregateType: "x", AggregateID: fmt.Sprint(i * i % 7)}
			if err := pub.Publish(ctx, evt); err != nil {
				return err
			}
		}
		return nil
	}))
	return from + n
}

// requireOnePlace fails unless each lane is where it says, and there once.
func (s *trouble) requireOnePlace() {
	term := s.d.current.Load()
	if term == nil {
		return
	}
	l := term.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[*lane][]place{}
	turns := map[*batchHandler]int{}
	for _, next := range l.ready {
		if next.batch != nil {
			turns[next.batch]++
			continue
		}
		found[next.lane] = append(found[next.lane], ready)
	}
	for _, ln := range l.suspects {
		found[ln] = append(found[ln], suspects)
	}
	for h, waiting := range l.batches {
		for _, ln := range waiting {
			found[ln] = append(found[ln], batches)
		}
		require.Equal(s.t, min(len(waiting), 1), turns[h], "a batch handler has a turn if lanes wait for it")
	}
	queued, busy := 0, 0
	for _, ln := range l.byKey {
		require.NotEmpty(s.t, ln.queue)
		require.NotEqual(s.t, stopped, ln.at, "nothing stops before the term does")
		switch ln.at {
		case taken:
			busy++
			require.Empty(s.t, found[ln])
		case parked:
			require.NotNil(s.t, ln.timer)
			require.Empty(s.t, found[ln])
		default:
			require.Equal(s.t, []place{ln.at}, found[ln])
		}
		if !ln.at.idle() {
			queued += len(ln.queue)
		}
		delete(found, ln)
	}
	require.Empty(s.t, found, "a lane that is gone waits")
	require.Equal(s.t, l.queued, queued)
	if l.running == 0 {
		require.Zero(s.t, busy, "nobody is at a lane that is taken")
	}
	if l.running < l.width {
		require.Empty(s.t, l.ready)
		require.True(s.t, l.suspect != nil || len(l.suspects) == 0)
	}
}
