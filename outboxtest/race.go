package outboxtest

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// raceOfDispatchers lets two dispatchers of one name deliver the same events.
func (s *suite) raceOfDispatchers() {
	s.needsConcurrency()
	s.commit(numbered("e", 20)...)
	s.settled()
	// Both meet at the first event before either is done with it.
	var met sync.WaitGroup
	met.Add(2)
	var mu sync.Mutex
	effects := map[string]int{}
	race := func() error {
		idempotency := meetingStore{s.Idempotency, sync.OnceFunc(func() { met.Done(); met.Wait() })}
		d := events.NewDispatcher(s.Outbox, s.Cursors, s.Transactor, idempotency)
		err := d.Subscribe("test.Happened", "h", func(ctx context.Context, evt events.Event) error {
			if err := s.Put(ctx, "h/"+evt.ID, "applied"); err != nil {
				return err
			}
			return persistence.AfterCommit(ctx, func(context.Context) {
				mu.Lock()
				defer mu.Unlock()
				effects[evt.ID]++
			})
		})
		if err != nil {
			return err
		}
		_, err = d.RunOnce(s.ctx, 100)
		return err
	}
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- race() }()
	}
	for range 2 {
		require.NoError(s, <-results)
	}
	require.Len(s, effects, 20)
	for id, n := range effects {
		require.Equal(s, 1, n, id)
	}
}

// meetingStore lets dispatchers meet before the first marker of each.
type meetingStore struct {
	persistence.IdempotencyStore
	meet func()
}

func (m meetingStore) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	m.meet()
	return m.IdempotencyStore.Record(ctx, markers...)
}
