package events_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func TestMiddlewareWrapsHandlersInOrder(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store)
	var calls []string
	note := func(name string) events.Middleware {
		return func(next events.Handler) events.Handler {
			return func(ctx context.Context, evt events.Event) error {
				calls = append(calls, "before "+name)
				require.True(t, persistence.InTransaction(ctx))
				err := next(ctx, evt)
				calls = append(calls, "after "+name)
				return err
			}
		}
	}
	d.Use(note("a"))
	d.Use(note("b"), note("c"))
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
		calls = append(calls, "handler")
		return nil
	}))
	publish(t, store, event("e"))
	_, err := d.RunOnce(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, []string{"before a", "before b", "before c", "handler", "after c", "after b", "after a"}, calls)
}

func TestAnErrorOfMiddlewareIsTheHandlers(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store)
	broken := true
	d.Use(func(next events.Handler) events.Handler {
		return func(ctx context.Context, evt events.Event) error {
			if err := next(ctx, evt); err != nil || !broken {
				return err
			}
			return errBroken
		}
	})
	table := memstore.NewTable[string, int](store)
	require.NoError(t, d.Subscribe("t", "h", func(ctx context.Context, evt events.Event) error { return table.Put(ctx, evt.ID, 1) }))
	publish(t, store, event("e"))
	_, err := d.RunOnce(t.Context(), 1)
	require.ErrorIs(t, err, errBroken)
	_, applied := table.Get(t.Context(), "e")
	require.False(t, applied)
	broken = false
	_, err = d.RunOnce(t.Context(), 1)
	require.NoError(t, err)
	_, applied = table.Get(t.Context(), "e")
	require.True(t, applied)
}

func TestMiddlewareThatComesTooLateOrIsNilIsRefused(t *testing.T) {
	store := memstore.New()
	for name, d := range map[string]func(*events.Dispatcher){
		"middleware 1 is nil": func(d *events.Dispatcher) {
			d.Use(func(next events.Handler) events.Handler { return next }, nil)
		},
		"Use comes too late": func(d *events.Dispatcher) {
			require.NoError(t, d.Subscribe("t", "h", nothing))
			d.Use(func(next events.Handler) events.Handler { return next })
		},
	} {
		dispatcher := events.NewDispatcher(store, store, store, store)
		d(dispatcher)
		_, err := dispatcher.RunOnce(t.Context(), 1)
		require.ErrorIs(t, err, persistence.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
}

// Around a batch each middleware is called for each event.
func TestMiddlewareWrapsBatchHandlers(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(1))
	var calls []string
	made := 0
	note := func(name string) events.Middleware {
		return func(next events.Handler) events.Handler {
			made++
			return func(ctx context.Context, evt events.Event) error {
				calls = append(calls, name+" "+evt.ID+" of "+events.AccountID(ctx))
				require.True(t, persistence.InTransaction(ctx))
				evt.Payload = append(evt.Payload, name...)
				err := next(ctx, evt)
				calls = append(calls, "after "+name+" "+evt.ID)
				return err
			}
		}
	}
	d.Use(note("a"), note("b"))
	require.NoError(t, d.SubscribeBatch("t", "h", func(ctx context.Context, evts []events.Event) error {
		require.Empty(t, events.AccountID(ctx))
		for _, evt := range evts {
			calls = append(calls, "handler "+evt.ID+" "+string(evt.Payload))
		}
		return nil
	}))
	one, two := of("1", "e1"), of("2", "e2")
	one.AccountID, two.AccountID = "acc1", "acc2"
	publish(t, store, one, two)
	n, err := d.RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{
		"a e1 of acc1", "b e1 of acc1", "a e2 of acc2", "b e2 of acc2", "handler e1 ab", "handler e2 ab",
		"after b e2", "after a e2", "after b e1", "after a e1",
	}, calls)
	publish(t, store, of("3", "e3"))
	_, err = d.RunOnce(t.Context(), 10)
	require.NoError(t, err)
	require.Contains(t, calls, "handler e3 ab")
	require.Equal(t, 2, made, "a handler is wrapped once")
}

// What a middleware does for one event is not done to the others of the batch.
func TestWhatMiddlewareDoesToAnEventOfABatchIsDoneToThatAlone(t *testing.T) {
	for name, m := range map[string]events.Middleware{
		"leaves it out": func(next events.Handler) events.Handler {
			return func(ctx context.Context, evt events.Event) error {
				if evt.ID == "bad" {
					return nil
				}
				return next(ctx, evt)
			}
		},
		"drops its error": func(next events.Handler) events.Handler {
			return func(ctx context.Context, evt events.Event) error {
				if err := next(ctx, evt); err != nil && evt.ID != "bad" {
					return err
				}
				return nil
			}
		},
		"calls it again": func(next events.Handler) events.Handler {
			return func(ctx context.Context, evt events.Event) error {
				if err := next(ctx, evt); err == nil || evt.ID != "bad" {
					return err
				}
				_ = next(ctx, evt)
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			d := events.NewDispatcher(store, store, store, store)
			d.Use(m)
			var applied batches
			require.NoError(t, d.SubscribeBatch("t", "h", applied.handler(func(_ context.Context, evt events.Event) error {
				if evt.ID == "bad" {
					return errBroken
				}
				return nil
			})))
			publish(t, store, of("1", "a"), of("2", "b"), of("3", "bad"), of("4", "c"), of("5", "d"))
			n, err := d.RunOnce(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, 5, n)
			require.ElementsMatch(t, []string{"a", "b", "c", "d"}, applied.all())
		})
	}
}

func TestMiddlewareThatReturnsNoHandlerOrLosesTheContextIsTold(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store)
	d.Use(func(next events.Handler) events.Handler { return next }, func(events.Handler) events.Handler { return nil })
	require.ErrorContains(t, d.Subscribe("t", "h", nothing), "middleware 1, which returns no handler")
	require.ErrorIs(t, d.SubscribeBatch("t", "b", func(context.Context, []events.Event) error { return nil }), persistence.ErrInvalid)
	_, err := d.RunOnce(t.Context(), 1)
	require.ErrorIs(t, err, persistence.ErrInvalid)

	d = events.NewDispatcher(store, store, store, store)
	d.Use(func(next events.Handler) events.Handler {
		return func(_ context.Context, evt events.Event) error { return next(context.Background(), evt) }
	})
	require.NoError(t, d.SubscribeBatch("t", "b", func(context.Context, []events.Event) error { return nil }))
	publish(t, store, event("a"))
	_, err = d.RunOnce(t.Context(), 1)
	require.ErrorContains(t, err, "not the one it was given")
}

type renamed struct {
	Name string `json:"name"`
}

func TestJSONDecodesThePayload(t *testing.T) {
	store := memstore.New()
	d := events.NewDispatcher(store, store, store, store, events.WithConcurrency(1))
	var names, together []string
	require.NoError(t, d.Subscribe("t", "one", events.JSON(func(_ context.Context, p renamed, evt events.Event) error {
		names = append(names, evt.ID+" "+p.Name)
		return nil
	})))
	require.NoError(t, d.SubscribeBatch("t", "many", events.JSONBatch(func(_ context.Context, ps []renamed, evts []events.Event) error {
		for i, p := range ps {
			together = append(together, evts[i].ID+" "+p.Name)
		}
		return nil
	})))
	for id, payload := range map[string]string{"a": `{"name": "Ada", "age": 36}`, "b": `{"name": 1}`, "c": `{"name": "Cid"}`, "d": ``} {
		evt := of(id, id)
		evt.Payload = []byte(payload)
		publish(t, store, evt)
	}
	_, err := d.RunOnce(t.Context(), 10)
	require.ErrorIs(t, err, events.ErrDeadLettered)
	require.ElementsMatch(t, []string{"a Ada", "c Cid"}, names)
	require.ElementsMatch(t, names, together)
	letters, err := store.ListDeadLetters(t.Context(), persistence.DeadLetterQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, letters, 4)
	for _, l := range letters {
		require.Equal(t, 1, l.Attempts)
		require.Contains(t, l.LastError, `is no events_test.renamed in JSON`)
		require.Contains(t, []string{"b", "d"}, l.Record.ID)
	}
}

func TestAnErrorOfATypedHandlerIsNotPermanent(t *testing.T) {
	h := events.JSON(func(context.Context, renamed, events.Event) error { return errBroken })
	evt := event("e")
	evt.Payload = []byte("{}")
	err := h(t.Context(), evt)
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, errBroken, err)
	require.Error(t, errors.Unwrap(h(t.Context(), event("none"))))
}
