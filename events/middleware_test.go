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
