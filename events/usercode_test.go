package events_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

// hostileError is an error of which each method breaks, or one of them.
type hostileError struct {
	method string // "" is all
	breaks func()
}

func (h hostileError) do(method string) {
	if h.method == "" || h.method == method {
		h.breaks()
	}
}

func (h hostileError) Error() string { h.do("Error"); return "hostile" }
func (h hostileError) Is(error) bool { h.do("Is"); return false }
func (h hostileError) As(any) bool   { h.do("As"); return false }
func (h hostileError) Unwrap() error { h.do("Unwrap"); return errBroken }

// hostileLog is a slog.Handler that breaks.
type hostileLog struct {
	slog.Handler
	enabled, handle func()
}

func (h hostileLog) Enabled(context.Context, slog.Level) bool {
	if h.enabled != nil {
		h.enabled()
	}
	return true
}

func (h hostileLog) Handle(context.Context, slog.Record) error {
	if h.handle != nil {
		h.handle()
	}
	return nil
}

// hostileJudge is a transactor that cannot judge errors.
type hostileJudge struct {
	*memstore.Store
	breaks func()
}

func (h hostileJudge) IsTransient(error) bool { h.breaks(); return false }

// brokenUse is a dispatcher of a user whose code breaks.
type brokenUse struct {
	opts    []events.Option
	tx      func(*memstore.Store) persistence.Transactor
	onError func(error)
	handle  func(ctx context.Context) error // of one event, once
	applied bool                            // all the same
}

// brokenUses are all ways in which code of the user's is called.
func brokenUses() map[string]func(breaks func()) brokenUse {
	uses := map[string]func(func()) brokenUse{
		"a handler": func(breaks func()) brokenUse {
			return brokenUse{handle: func(context.Context) error { breaks(); return nil }}
		},
		"a nil pointer as an error": func(func()) brokenUse {
			return brokenUse{handle: func(context.Context) error { var err *nilError; return err }}
		},
		"a function of AfterCommit": func(breaks func()) brokenUse {
			return brokenUse{applied: true, handle: func(ctx context.Context) error {
				return persistence.AfterCommit(ctx, func(context.Context) { breaks() })
			}}
		},
		"a transactor's judgement": func(breaks func()) brokenUse {
			return brokenUse{
				tx:     func(store *memstore.Store) persistence.Transactor { return hostileJudge{store, breaks} },
				handle: func(context.Context) error { return errBroken },
			}
		},
		"onError": func(breaks func()) brokenUse {
			return brokenUse{onError: func(error) { breaks() }, handle: func(context.Context) error { return errBroken }}
		},
		"a logger": func(breaks func()) brokenUse {
			log := slog.New(hostileLog{handle: breaks})
			return brokenUse{opts: []events.Option{events.WithLogger(log)}, handle: func(context.Context) error { return errBroken }}
		},
		"a logger's level": func(breaks func()) brokenUse {
			log := slog.New(hostileLog{enabled: breaks})
			return brokenUse{opts: []events.Option{events.WithLogger(log)}, handle: func(context.Context) error { return errBroken }}
		},
		"an observer": func(breaks func()) brokenUse {
			delivery := func(events.DeliveryInfo) { breaks() }
			return brokenUse{handle: func(context.Context) error { return errBroken }, opts: []events.Option{events.WithObserver(events.Observer{
				Delivered: delivery, Failed: delivery, Postponed: delivery, DeadLettered: delivery, Replayed: delivery, ReplayFailed: delivery,
				Read: func(events.ReadInfo) { breaks() }, Saved: func(events.SaveInfo) { breaks() },
				Lease: func(events.LeaseInfo) { breaks() }, LateEvents: func(events.LateInfo) { breaks() },
			})}}
		},
	}
	for _, method := range []string{"Error", "Is", "As", "Unwrap"} {
		uses["an error's "+method] = func(breaks func()) brokenUse {
			return brokenUse{handle: func(context.Context) error { return fmt.Errorf("%w", &hostileError{method, breaks}) }}
		}
		// One that fmt has not looked into yet.
		uses["a bare error's "+method] = func(breaks func()) brokenUse {
			return brokenUse{handle: func(context.Context) error { return hostileError{method, breaks} }}
		}
	}
	return uses
}

type nilError struct{ text string }

func (n *nilError) Error() string { return n.text }

// eachWay runs a test for each use and each way in which it may break.
func eachWay(t *testing.T, test func(t *testing.T, use brokenUse)) {
	for name, use := range brokenUses() {
		for way, breaks := range map[string]func(release chan struct{}){
			"panics":           func(chan struct{}) { panic("broken") },
			"panics hostilely": func(chan struct{}) { panic(hostileError{breaks: runtime.Goexit}) },
			"exits":            func(chan struct{}) { runtime.Goexit() },
			"blocks":           func(release chan struct{}) { <-release },
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					defer close(release)
					if way == "blocks" && (name == "a handler" || name == "a function of AfterCommit") {
						// It is waited for, so it has to end.
						test(t, use(func() { time.Sleep(2 * time.Minute) }))
						return
					}
					if name == "an error's Error" && way != "panics" {
						// fmt itself calls it, in the handler.
						return
					}
					test(t, use(func() { breaks(release) }))
				})
			})
		}
	}
}

// one returns a handler that breaks once, for the event "bad".
func (u *brokenUse) one(applied *log) events.Handler {
	handle := u.handle
	return applied.handler(func(ctx context.Context, evt events.Event) error {
		if evt.ID != "bad" || handle == nil {
			return nil
		}
		once := handle
		handle = nil
		return once(ctx)
	})
}

// many returns one of batches, which breaks as long as that event does not come alone.
func (u *brokenUse) many(applied *log) events.BatchHandler {
	handle := u.handle
	return func(ctx context.Context, evts []events.Event) error {
		if slices.ContainsFunc(evts, func(evt events.Event) bool { return evt.ID == "bad" }) && handle != nil {
			breaks := handle
			if len(evts) == 1 {
				handle = nil
			}
			if err := breaks(ctx); err != nil {
				return err
			}
		}
		return persistence.AfterCommit(ctx, func(context.Context) {
			for _, evt := range evts {
				applied.add(evt.ID)
			}
		})
	}
}

func (u *brokenUse) dispatcher(store *memstore.Store) *events.Dispatcher {
	tx := persistence.Transactor(store)
	if u.tx != nil {
		tx = u.tx(store)
	}
	opts := append([]events.Option{events.WithHandlerTimeout(30 * time.Second), events.WithLease(3 * time.Second)}, u.opts...)
	return events.NewDispatcher(store, store, tx, store, opts...)
}

// Whatever code of the user's does: all events are delivered, once; the event that it
// fails on, and no other one, has failed; Poll ends, and the lease is free.
func TestCodeOfTheUserCanBreakNothing(t *testing.T) {
	ids := []string{"a0", "bad", "b1", "c0", "a1", "d0", "c1", "b2"}
	for kind, subscribe := range map[string]func(*events.Dispatcher, *brokenUse, *log) error{
		"single": func(d *events.Dispatcher, u *brokenUse, applied *log) error {
			return d.Subscribe("t", "h", u.one(applied))
		},
		"batch": func(d *events.Dispatcher, u *brokenUse, applied *log) error {
			return d.SubscribeBatch("t", "h", u.many(applied))
		},
		"middleware": func(d *events.Dispatcher, u *brokenUse, applied *log) error {
			broken := u.one(&log{})
			d.Use(func(next events.Handler) events.Handler {
				return func(ctx context.Context, evt events.Event) error {
					if err := broken(ctx, evt); err != nil {
						return err
					}
					return next(ctx, evt)
				}
			})
			return d.Subscribe("t", "h", applied.handler(nil))
		},
	} {
		t.Run(kind, func(t *testing.T) {
			eachWay(t, func(t *testing.T, use brokenUse) {
				store := memstore.New()
				for _, id := range ids {
					aggregate := id[:1]
					if id == "bad" {
						aggregate = "b"
					}
					publish(t, store, of(aggregate, id))
				}
				var s seen
				use.opts = append(use.opts, events.WithObserver(s.observer()))
				d := use.dispatcher(store)
				var applied log
				require.NoError(t, subscribe(d, &use, &applied))
				r := pollEvery(t, 10*time.Second, d, use.onError)
				elapse(time.Minute)
				if kind != "batch" { // which shares a transaction with the others
					require.Subset(t, applied.all(), []string{"a0", "c0", "d0"}, "others go on")
				}
				elapse(20 * time.Minute)
				require.ElementsMatch(t, ids, applied.all())
				for _, id := range s.told("failed") {
					require.Equal(t, "bad", id, "nobody else is blamed")
				}
				if use.applied {
					require.Empty(t, s.told("failed"))
				} else {
					require.NotEmpty(t, s.told("failed"))
				}
				began := time.Now()
				r.stop()
				require.LessOrEqual(t, time.Since(began), 10*time.Second)
				requireFree(t, store)
			})
		})
	}
}

// requireFree fails unless nobody holds the lease, and nobody renews it.
func requireFree(t *testing.T, store *memstore.Store) {
	t.Helper()
	time.Sleep(time.Minute)
	lease, err := store.Acquire(t.Context(), events.DefaultName, "somebody", time.Second)
	require.NoError(t, err)
	require.NoError(t, store.Release(t.Context(), lease))
}

// The same code in replays: of Replay, and of a letter that was requeued.
func TestCodeOfTheUserThatBreaksInAReplay(t *testing.T) {
	for _, requeued := range []bool{false, true} {
		t.Run(fmt.Sprint("requeued ", requeued), func(t *testing.T) {
			eachWay(t, func(t *testing.T, use brokenUse) {
				store := memstore.New()
				publish(t, store, event("bad"))
				dying := newDispatcher(t, store, func(context.Context, events.Event) error { return events.Permanent(errBroken) })
				_, err := dying.RunOnce(t.Context(), 10)
				require.ErrorIs(t, err, events.ErrDeadLettered)
				letters := events.NewDeadLetters(store, store)
				found, err := letters.List(t.Context(), persistence.DeadLetterQuery{Limit: 1})
				require.NoError(t, err)
				letter := found[0].Marker()

				d := use.dispatcher(store)
				var applied log
				require.NoError(t, d.Subscribe("t", "h", use.one(&applied)))
				if requeued {
					require.NoError(t, letters.Requeue(t.Context(), letter))
					r := pollEvery(t, 10*time.Second, d, use.onError)
					elapse(10 * time.Minute)
					r.stop()
					requireFree(t, store)
				} else if err = d.Replay(t.Context(), letter); use.applied {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
				}
				l, err := letters.Get(t.Context(), letter)
				require.NoError(t, err)
				if use.applied {
					require.Equal(t, persistence.DeadLetterReplayed, l.State)
					require.Equal(t, []string{"bad"}, applied.all(), "later functions have been called")
					return
				}
				require.Equal(t, persistence.DeadLetterDead, l.State)
				require.Empty(t, applied.all())
				require.NoError(t, d.Replay(t.Context(), letter))
				require.Equal(t, []string{"bad"}, applied.all())
			})
		})
	}
}

func TestAFunctionOfAfterCommitThatFailsFailsNoReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		publish(t, store, event("a"))
		fails := true
		var s seen
		d := newDispatcher(t, store, func(ctx context.Context, _ events.Event) error {
			if fails {
				return events.Permanent(errBroken)
			}
			return persistence.AfterCommit(ctx, func(context.Context) { panic("broken") })
		}, events.WithObserver(s.observer()))
		_, err := d.RunOnce(t.Context(), 1)
		require.ErrorIs(t, err, events.ErrDeadLettered)
		fails = false
		letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 1})
		require.NoError(t, err)
		require.NoError(t, d.Replay(t.Context(), letters[0].Marker()))
		require.Equal(t, []string{"a"}, s.told("replayed"))
		require.Empty(t, s.told("replay failed"))
	})
}

// leaving is a store whose reads leave the goroutine.
type leaving struct {
	*memstore.Store
	leave func()
}

func (l *leaving) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	if l.leave != nil {
		l.leave()
	}
	return l.Store.ReadWindow(ctx, read)
}

func TestAPassThatIsLeftByAPanicGivesTheLeaseBack(t *testing.T) {
	for way, leave := range map[string]func(){"panic": func() { panic("the store is broken") }, "goexit": runtime.Goexit} {
		for kind, run := range map[string]func(context.Context, *events.Dispatcher){
			"Poll":    func(ctx context.Context, d *events.Dispatcher) { _ = d.Poll(ctx, time.Second, 10, nil) },
			"RunOnce": func(ctx context.Context, d *events.Dispatcher) { _, _ = d.RunOnce(ctx, 10) },
		} {
			t.Run(kind+" "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					publish(t, store, event("a"))
					broken := &leaving{store, leave}
					var applied log
					d := events.NewDispatcher(broken, store, store, store)
					require.NoError(t, d.Subscribe("t", "h", applied.handler(nil)))
					left := make(chan any)
					go func() {
						defer func() { left <- recover() }()
						run(t.Context(), d)
					}()
					value := <-left
					require.Equal(t, way == "panic", value != nil, "a panic goes on")
					require.Empty(t, applied.all())
					status, err := d.Status(t.Context())
					require.NoError(t, err)
					require.False(t, status.Polling || status.Working || status.Lease.Held)
					requireFree(t, store)
					broken.leave = nil
					n, err := d.RunOnce(t.Context(), 10)
					require.NoError(t, err)
					require.Equal(t, 1, n)
				})
			})
		}
	}
}
