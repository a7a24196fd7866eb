package eventstest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/eventstest"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// spy is a test that may fail without failing this one.
type spy struct {
	testing.TB
	failed  bool
	message string
}

func (s *spy) Helper() {}

func (s *spy) Fatalf(format string, args ...any) {
	s.failed = true
	s.message = format
	panic(s)
}

func (s *spy) Fatal(...any) { s.Fatalf("fatal") }

// fails reports whether check fails the test that it is given.
func fails(t *testing.T, check func(t testing.TB)) bool {
	s := &spy{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(s) {
				panic(r)
			}
		}()
		check(s)
	}()
	return s.failed
}

var errBroken = errors.New("broken")

func TestPublishDrainWant(t *testing.T) {
	outbox := eventstest.New(t)
	recorder := outbox.Record("t")
	evts := eventstest.Events(3, "t", eventstest.Aggregate("User", "u"), eventstest.Account("a"), eventstest.JSON(map[string]int{"n": 1}))
	outbox.Publish(evts...)
	require.Len(t, outbox.Published(), 3)
	require.Empty(t, recorder.Events())
	outbox.Drain()
	recorder.Want(t, evts...)
	recorder.Want(t, outbox.Published()...)
	require.Equal(t, 3, recorder.Tries())
	require.Equal(t, `{"n":1}`, string(recorder.Events()[0].Payload))
}

func TestDrainDeliversWhatHandlersPublish(t *testing.T) {
	outbox := eventstest.New(t)
	last := outbox.Record("second")
	outbox.Subscribe("first", func(ctx context.Context, evt events.Event) error {
		return outbox.Publisher.Publish(ctx, eventstest.Event("second"))
	})
	outbox.Publish(eventstest.Event("first"))
	outbox.Drain()
	last.Want(t, events.Event{Type: "second"})
}

func TestWantFailsForAnyDifference(t *testing.T) {
	evt := eventstest.Delivered(eventstest.Event("t", eventstest.Account("a"), eventstest.Payload([]byte("p"))))
	got := []events.Event{evt}
	eventstest.Want(t, got, evt)
	eventstest.Want(t, got, events.Event{})
	for _, change := range []func(e *events.Event){
		func(e *events.Event) { e.ID = "x" }, func(e *events.Event) { e.Type = "x" }, func(e *events.Event) { e.AccountID = "x" },
		func(e *events.Event) { e.AggregateType = "x" }, func(e *events.Event) { e.AggregateID = "x" },
		func(e *events.Event) { e.Payload = []byte("x") }, func(e *events.Event) { e.DedupKey = "x" },
		func(e *events.Event) { e.CreatedTime = e.CreatedTime.Add(1000) },
	} {
		other := evt
		change(&other)
		require.True(t, fails(t, func(t testing.TB) { eventstest.Want(t, got, other) }), "%+v", other)
	}
	require.True(t, fails(t, func(t testing.TB) { eventstest.Want(t, got) }))
	require.True(t, fails(t, func(t testing.TB) { eventstest.Want(t, nil, evt) }))
	require.True(t, fails(t, func(t testing.TB) { eventstest.Want(t, got, evt, evt) }))
}

func TestAFailureFailsTheTest(t *testing.T) {
	broken := func(context.Context, events.Event) error { return errBroken }
	require.True(t, fails(t, func(t testing.TB) {
		outbox := eventstest.New(t)
		outbox.Subscribe("t", broken)
		outbox.Publish(eventstest.Event("t"))
		outbox.Drain()
	}))
	require.True(t, fails(t, func(t testing.TB) { eventstest.New(t).Publish(eventstest.Event("")) }))
	require.True(t, fails(t, func(t testing.TB) { eventstest.New(t).Subscribe("", broken) }))
}

func TestWhatIsRolledBackIsATryAndNoEvent(t *testing.T) {
	outbox := eventstest.New(t)
	var inner, outer eventstest.Recorder
	outbox.Subscribe("t", func(ctx context.Context, evt events.Event) error {
		if err := inner.Handle(ctx, evt); err != nil {
			return err
		}
		return outer.Handle(ctx, evt)
	})
	outer.FailWith(errBroken, nil)
	outbox.Publish(eventstest.Event("t"))
	require.ErrorIs(t, eventstest.Drain(t.Context(), outbox.Dispatcher), errBroken)
	require.Empty(t, inner.Events())
	outbox.Drain()
	require.Equal(t, 2, inner.Tries())
	require.Len(t, inner.Events(), 1)
}

func TestARecorderOutsideOfATransaction(t *testing.T) {
	var r eventstest.Recorder
	evt := eventstest.Delivered(eventstest.Event("t", eventstest.DedupKey("k")))
	require.NotEmpty(t, evt.ID)
	require.False(t, evt.CreatedTime.IsZero())
	require.NoError(t, r.Handle(t.Context(), evt))
	require.NoError(t, r.HandleBatch(t.Context(), []events.Event{evt}))
	r.Want(t, evt, evt)
}

func TestDeadLetters(t *testing.T) {
	outbox := eventstest.New(t, events.WithMaxAttempts(1))
	outbox.Record("t").FailWith(errBroken)
	outbox.Publish(eventstest.Event("t", eventstest.ID("e")))
	require.ErrorIs(t, eventstest.Drain(t.Context(), outbox.Dispatcher), events.ErrDeadLettered)
	require.Equal(t, "e", outbox.DeadLetters()[0].Record.ID)
}

// faulty is a dispatcher and its publisher over faulty stores.
func faulty(t *testing.T) (*eventstest.Faults, *memstore.Store, *events.Dispatcher, *eventstest.Recorder) {
	store := memstore.New()
	var f eventstest.Faults
	d := events.NewDispatcher(f.Outbox(store), f.Cursors(store), f.Transactor(store), f.Idempotency(store))
	var r eventstest.Recorder
	require.NoError(t, d.Subscribe("t", "h", r.Handle))
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, eventstest.Event("t"))
	}))
	return &f, store, d, &r
}

// Whichever call of a dispatcher fails, or is done and loses its answer, the event takes effect once.
func TestADispatcherOutlivesTheFaultOfAnyCall(t *testing.T) {
	for _, method := range []string{
		"Atomically", "ReadWindow", "SafeMark", "CountRows", "RecordNew", "Applied",
		"Create", "Load", "Acquire", "Release", "Save", "Counts", "Register", "RegisterAt", "Serve",
	} {
		for name, plan := range map[string]func(*eventstest.Faults){
			"fails":          func(f *eventstest.Faults) { f.Fail(method, eventstest.ErrLost) },
			"loses":          func(f *eventstest.Faults) { f.Lose(method, eventstest.ErrLost) },
			"fails and lost": func(f *eventstest.Faults) { f.Fail(method, eventstest.ErrLost); f.Lose(method, eventstest.ErrLost) },
		} {
			f, _, d, r := faulty(t)
			plan(f)
			for range 3 {
				if err := eventstest.Drain(t.Context(), d); err != nil {
					require.ErrorIs(t, err, eventstest.ErrLost, "%s %s", method, name)
				}
			}
			require.Len(t, r.Events(), 1, "%s %s", method, name)
		}
	}
}

func TestAFailedAppendPublishesNothing(t *testing.T) {
	store := memstore.New()
	var f eventstest.Faults
	publish := func(evt events.Event) error {
		return f.Transactor(store).Atomically(t.Context(), func(ctx context.Context) error {
			return events.NewPublisher(f.Outbox(store)).Publish(ctx, evt)
		})
	}
	f.Fail("Append", errBroken)
	require.ErrorIs(t, publish(eventstest.Event("t")), errBroken)
	f.Lose("Append", errBroken)
	require.ErrorIs(t, publish(eventstest.Event("t")), errBroken)
	published, err := eventstest.Published(t.Context(), store)
	require.NoError(t, err)
	require.Empty(t, published)

	f.Fail("SafeMark", nil, errBroken)
	_, err = f.Outbox(store).SafeMark(t.Context())
	require.NoError(t, err)
	_, err = f.Outbox(store).SafeMark(t.Context())
	require.ErrorIs(t, err, errBroken)

	f.Lose("Atomically", errBroken)
	require.ErrorIs(t, publish(eventstest.Event("t", eventstest.DedupKey("k"))), errBroken)
	require.ErrorIs(t, publish(eventstest.Event("t", eventstest.DedupKey("k"))), persistence.ErrDuplicate)
	require.Equal(t, 3, f.Calls("Append"))
	require.Equal(t, 2, f.Calls("ReserveKeys"))
}

func TestABlockedCallWaits(t *testing.T) {
	f, _, d, r := faulty(t)
	held := f.Block("RecordNew")
	done := make(chan error, 1)
	go func() { done <- eventstest.Drain(t.Context(), d) }()
	<-held.Reached()
	require.Empty(t, r.Events())
	held.Release()
	held.Release()
	require.NoError(t, <-done)
	require.Len(t, r.Events(), 1)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.Block("ListCursors")
	_, err := f.Admin(memstore.New()).ListCursors(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAMethodThatNoStoreHasIsAPanic(t *testing.T) {
	var f eventstest.Faults
	for _, use := range []func(){
		func() { f.Fail("Apend", errBroken) }, func() { f.Lose("", errBroken) }, func() { f.Block("append") }, func() { f.Calls("Get") },
	} {
		require.Panics(t, use)
	}
}

func TestJSONOfWhatHasNoneIsAPanic(t *testing.T) {
	require.PanicsWithValue(t, "eventstest: payload: json: unsupported type: chan int", func() { eventstest.JSON(make(chan int)) })
	require.True(t, strings.Contains(string(eventstest.Event("t", eventstest.JSON("x")).Payload), "x"))
}
