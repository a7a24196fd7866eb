package health_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/health"
	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
)

func get(t *testing.T, h http.Handler) (int, health.Report, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var report health.Report
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &report), w.Body.String())
	return w.Code, report, w.Body.String()
}

func publish(t *testing.T, store *memstore.Store, id string) {
	t.Helper()
	require.NoError(t, store.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(store).Publish(ctx, events.Event{ID: id, Type: "t", AggregateType: "a", AggregateID: "1", Payload: []byte("secret payload")})
	}))
}

// A dispatcher is ready, falls behind, and is ready again.
func TestALagOverTheLimitIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := events.NewDispatcher(store, store, store, store)
		var broken atomic.Bool
		broken.Store(true)
		require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error {
			if broken.Load() {
				return errors.New("secret error")
			}
			return nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Poll(ctx, time.Second, 10, nil) }()
		time.Sleep(time.Second)
		h := health.Handler(d, health.WithMaxLag(10*time.Second), health.WithPolling())
		code, report, _ := get(t, h)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, health.Report{Ready: true, Problems: []string{}, Dispatcher: "default", Polling: true, Working: true, LeaseHeld: true}, report)

		publish(t, store, "a")
		time.Sleep(15 * time.Second)
		code, report, text := get(t, h)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.False(t, report.Ready)
		require.Equal(t, persistence.Count{N: 1}, report.Failing)
		require.Equal(t, []string{"the oldest event that is not settled is 15s old, the limit is 10s"}, report.Problems)
		require.NotContains(t, text, "secret")
		_, _, text = get(t, health.Handler(d, health.WithDetails()))
		require.Contains(t, text, "secret error")
		require.NotContains(t, text, "payload")

		broken.Store(false)
		time.Sleep(time.Minute)
		code, _, _ = get(t, h)
		require.Equal(t, http.StatusOK, code)
		cancel()
		require.NoError(t, <-done)
		code, report, _ = get(t, h)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, []string{"Poll does not run in this process"}, report.Problems)
		code, _, _ = get(t, health.Handler(d))
		require.Equal(t, http.StatusOK, code)
	})
}

// Before its first pass a dispatcher has as long as the lag may be.
func TestADispatcherThatHasNotRunIsReadyForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		d := events.NewDispatcher(store, store, store, store)
		h := health.Handler(d, health.WithMaxLag(10*time.Second))
		time.Sleep(10 * time.Second)
		code, report, _ := get(t, h)
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, events.DefaultName, report.Dispatcher)
		time.Sleep(time.Second)
		code, report, _ = get(t, h)
		require.Equal(t, http.StatusServiceUnavailable, code)
		require.Equal(t, []string{"the dispatcher has not run yet, or was forgotten; this check is 11s old, the limit is 10s"}, report.Problems)
		_, err := d.RunOnce(t.Context(), 1)
		require.NoError(t, err)
		code, _, _ = get(t, h)
		require.Equal(t, http.StatusOK, code)
	})
}

// told is a dispatcher with a status.
type told events.Status

func (s told) Status(context.Context) (events.Status, error) { return events.Status(s), nil }

func TestAPartThatCannotBeReadIsNamedAndNoProblem(t *testing.T) {
	var logged bytes.Buffer
	status := told{}
	status.Dispatcher = "d"
	status.Unread = []persistence.UnreadPart{
		{Part: persistence.StatusPartitions, Of: "outbox", Error: "secret_role may not"},
		{Part: persistence.StatusPartitions, Of: "outbox_idempotency", Error: "secret_role may not"},
		{Part: persistence.StatusDeadLetters, Error: "secret_role may not"},
	}
	ask := func() (int, health.Report) {
		code, report, text := get(t, health.Handler(status, health.WithLogger(slog.New(slog.NewTextHandler(&logged, nil)))))
		require.NotContains(t, text, "secret")
		return code, report
	}
	code, report := ask()
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, []persistence.StatusPart{persistence.StatusPartitions, persistence.StatusDeadLetters}, report.Unread)
	require.Contains(t, logged.String(), "secret_role may not")
	status.Unread = append(status.Unread, persistence.UnreadPart{Part: persistence.StatusLag, Of: "d", Error: "secret"})
	code, report = ask()
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, []string{"the lag could not be read; the log says why"}, report.Problems)
}

// unreachable is a dispatcher whose database does not answer.
type unreachable struct{}

func (unreachable) Status(ctx context.Context) (events.Status, error) {
	<-ctx.Done()
	return events.Status{}, errors.New("dial db.internal as outbox_user: timeout")
}

func TestADatabaseThatDoesNotAnswerIsNotReadyAndNotTold(t *testing.T) {
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	code, report, text := get(t, health.Handler(unreachable{}, health.WithTimeout(time.Millisecond), health.WithLogger(logger)))
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.False(t, report.Ready)
	require.Equal(t, []string{"the status could not be read; the log says why"}, report.Problems)
	require.NotContains(t, text, "db.internal")
	require.Contains(t, logged.String(), "outbox: health check failed")
	require.Contains(t, logged.String(), "db.internal")
	_, _, _ = get(t, health.Handler(unreachable{}, health.WithTimeout(time.Millisecond), health.WithLogger(nil)))
}

// blockedLog is a slog.Handler that does not return.
type blockedLog struct {
	slog.Handler
	release chan struct{}
}

func (b blockedLog) Enabled(context.Context, slog.Level) bool { <-b.release; return true }

func TestALoggerThatDoesNotReturnHoldsUpNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := blockedLog{slog.DiscardHandler, make(chan struct{})}
		defer close(log.release)
		h := health.Handler(unreachable{}, health.WithTimeout(time.Millisecond), health.WithLogger(slog.New(log)))
		for range 3 {
			began := time.Now()
			code, _, _ := get(t, h)
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.LessOrEqual(t, time.Since(began), 2*time.Second)
		}
	})
}

func TestBadRequestsAndOptions(t *testing.T) {
	ask := func(h http.Handler, method string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/health", nil))
		return w.Code, w.Body.String()
	}
	code, _ := ask(health.Handler(unreachable{}), http.MethodPost)
	require.Equal(t, http.StatusMethodNotAllowed, code)
	for want, h := range map[string]http.Handler{
		"the dispatcher is nil":    health.Handler(nil),
		"the greatest lag is 0s":   health.Handler(unreachable{}, health.WithMaxLag(0)),
		"the timeout is -1s":       health.Handler(unreachable{}, health.WithTimeout(-time.Second)),
		"invalid: option 1 is nil": health.Handler(unreachable{}, health.WithPolling(), nil),
	} {
		code, text := ask(h, http.MethodGet)
		require.Equal(t, http.StatusInternalServerError, code)
		require.Contains(t, text, want)
	}
}
