package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func marker(id, handler string) persistence.Marker {
	return persistence.Marker{Event: persistence.Cursor{CreatedTime: stamp(0), ID: id}, Handler: handler}
}

func (s *suite) recordMarkers(markers ...persistence.Marker) []bool {
	s.Helper()
	var recorded []bool
	require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) (err error) {
		recorded, err = s.Idempotency.Record(ctx, markers...)
		return err
	}))
	return recorded
}

// recording is a way to record one marker, which is true if it is new.
type recording func(ctx context.Context, m persistence.Marker) (isNew bool, err error)

// recordings are the ways there are. Where the marker exists, the transaction has to
// be rolled back after the second.
func (s *suite) recordings() map[string]recording {
	return map[string]recording{
		"Record": func(ctx context.Context, m persistence.Marker) (bool, error) {
			recorded, err := s.Idempotency.Record(ctx, m)
			return err == nil && recorded[0], err
		},
		"RecordNew": func(ctx context.Context, m persistence.Marker) (bool, error) {
			err := s.Idempotency.RecordNew(ctx, m)
			return err == nil, err
		},
	}
}

// recordNew records markers that are expected to be new, in a transaction.
func (s *suite) recordNew(markers ...persistence.Marker) error {
	return s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
		for _, m := range markers {
			if err := s.Idempotency.RecordNew(ctx, m); err != nil {
				return err
			}
		}
		return nil
	})
}

var idempotencyRules = []rule{
	{"a marker that is to be new is an error if it exists", func(s *suite) {
		require.NoError(s, s.recordNew(marker("a", "h"), marker("b", "h"), marker("a", "h2")))
		require.ErrorIs(s, s.recordNew(marker("a", "h")), persistence.ErrApplied)
		require.ErrorIs(s, s.recordNew(marker("c", "h"), marker("b", "h")), persistence.ErrApplied)
		require.ErrorIs(s, s.recordNew(marker("d", "h"), marker("d", "h")), persistence.ErrApplied)
		require.Equal(s, []bool{false, false, false, true, true},
			s.recordMarkers(marker("a", "h"), marker("b", "h"), marker("a", "h2"), marker("c", "h"), marker("d", "h")))
		require.ErrorIs(s, s.recordNew(marker("c", "h")), persistence.ErrApplied)
		require.ErrorIs(s, s.recordNew(persistence.Marker{}), persistence.ErrInvalid)
	}},
	{"several markers are recorded whatever their text", func(s *suite) {
		var markers []persistence.Marker
		for i, text := range []string{`NULL`, `null`, `"`, `\`, `\"`, `{a,b}`, `,`, `'`, `$1`, `%s`, `{"a":1}`, `a\\`} {
			markers = append(markers, persistence.Marker{Event: at(i, text), Handler: text + " \t\u00e9\U0001F600 " + text})
		}
		require.NotContains(s, s.recordMarkers(markers...), false)
		applied, err := s.Idempotency.Applied(s.ctx, markers...)
		require.NoError(s, err)
		require.NotContains(s, applied, false)
		require.NotContains(s, s.recordMarkers(markers...), true)
	}},
	{"a marker is recorded once", func(s *suite) {
		require.Equal(s, []bool{true}, s.recordMarkers(marker("a", "h")))
		require.Equal(s, []bool{false}, s.recordMarkers(marker("a", "h")))
		require.Equal(s, []bool{true, false, true}, s.recordMarkers(marker("a", "h2"), marker("a", "h"), marker("b", "h")))
		applied, err := s.Idempotency.Applied(s.ctx, marker("b", "h"), marker("b", "h2"), marker("a", "h"))
		require.NoError(s, err)
		require.Equal(s, []bool{true, false, true}, applied)
	}},
	{"many markers are recorded at once, and each but once", func(s *suite) {
		var many []persistence.Marker
		var isNew []bool
		for i := range 1000 {
			many = append(many, marker(fmt.Sprintf("m-%d", (i*7)%1000), "h"))
			isNew = append(isNew, true)
		}
		require.Equal(s, isNew, s.recordMarkers(many...))
		for i := range isNew {
			isNew[i] = false
		}
		require.Equal(s, isNew, s.recordMarkers(many...))
		more := append(many[990:], marker("n", "h"), marker("n", "h"), marker("o", "h"))
		require.Equal(s, append(isNew[990:], true, false, true), s.recordMarkers(more...))
	}},
	{"markers that differ in case, time or by a blank are different", func(s *suite) {
		later := marker("a", "h")
		later.Event.CreatedTime = later.Event.CreatedTime.Add(time.Microsecond)
		require.Equal(s, []bool{true, true, true, true, true},
			s.recordMarkers(marker("a", "h"), marker("A", "h"), marker("a", "H"), marker("a", "h "), later))
	}},
	{"a marker needs a transaction and goes with it", func(s *suite) {
		for way, record := range s.recordings() {
			_, err := record(s.ctx, marker("a", way))
			require.ErrorIs(s, err, persistence.ErrNoTransaction, way)
			require.ErrorIs(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
				_, err := record(ctx, marker("a", way))
				require.NoError(s, err, way)
				return errRollback
			}), errRollback, way)
			require.Equal(s, []bool{true}, s.recordMarkers(marker("a", way)), way)
		}
	}},
	{"a marker that is recorded leaves the transaction usable", func(s *suite) {
		s.recordMarkers(marker("a", "h"))
		require.NoError(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
			recorded, err := s.Idempotency.Record(ctx, marker("a", "h"))
			require.NoError(s, err)
			require.Equal(s, []bool{false}, recorded)
			return s.Put(ctx, "k", "v")
		}))
		s.wantState("k", "v")
	}},
	{"Record and Applied of no markers do nothing", func(s *suite) {
		require.Empty(s, s.recordMarkers())
		applied, err := s.Idempotency.Applied(s.ctx)
		require.NoError(s, err)
		require.Empty(s, applied)
	}},
	{"a racing twin waits: false if the first commits", func(s *suite) { s.race(nil, false) }},
	{"a racing twin waits: true if the first rolls back", func(s *suite) { s.race(errRollback, true) }},
	{"a marker that cannot be written is an error, never already applied", func(s *suite) {
		for way, record := range s.recordings() {
			ctx, cancel := context.WithCancel(s.ctx)
			err := s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				cancel()
				isNew, err := record(ctx, marker("a", way))
				if err == nil && !isNew {
					s.Error("a marker that nobody wrote is reported as already applied")
				}
				return err
			})
			require.Error(s, err, way)
			require.NotErrorIs(s, err, persistence.ErrApplied, way)
			require.Equal(s, []bool{true}, s.recordMarkers(marker("a", way)), way)
			if s.EndTransaction == nil {
				continue
			}
			require.Error(s, s.Transactor.Atomically(s.ctx, func(ctx context.Context) error {
				_ = s.EndTransaction(ctx)
				_, err := record(ctx, marker("a", way))
				require.ErrorIs(s, err, persistence.ErrNoTransaction, way)
				return nil
			}), way)
		}
	}},
	{"a twin that waits gives up with its context", func(s *suite) {
		s.needsConcurrency()
		for way, record := range s.recordings() {
			first := s.begin(func(ctx context.Context) error {
				_, err := record(ctx, marker("a", way))
				return err
			})
			ctx, cancel := context.WithTimeout(s.ctx, 50*time.Millisecond)
			err := s.Transactor.Atomically(ctx, func(ctx context.Context) error {
				_, err := record(ctx, marker("a", way))
				return err
			})
			cancel()
			require.Error(s, err, way)
			require.NotErrorIs(s, err, persistence.ErrApplied, way)
			first.finish(errRollback)
			require.Equal(s, []bool{true}, s.recordMarkers(marker("a", way)), way)
		}
	}},
}

// race lets two transactions record one marker, and the first end in the given
// way while the second has begun.
func (s *suite) race(end error, want bool) {
	s.needsConcurrency()
	for way, record := range s.recordings() {
		m := marker("a", way)
		first := s.begin(func(ctx context.Context) error {
			isNew, err := record(ctx, m)
			require.True(s, isNew, way)
			return err
		})
		entered := make(chan struct{})
		var isNew bool
		second := make(chan error, 1)
		go func() {
			second <- s.Transactor.Atomically(s.ctx, func(ctx context.Context) (err error) {
				close(entered)
				isNew, err = record(ctx, m)
				return err
			})
		}()
		<-entered
		first.finish(end)
		if err := <-second; want || !errors.Is(err, persistence.ErrApplied) {
			require.NoError(s, err, way)
		}
		require.Equal(s, want, isNew, way)
	}
}
