package iam_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/app"
	"github.com/onward-go/outbox/testdata/iam/domain"
	"github.com/onward-go/outbox/testdata/matrix"
)

// wiring is a way to run the example.
type wiring struct {
	name string
	open func(testing.TB) fixture
	// oneWriter says that a second transaction that writes waits for the first.
	oneWriter bool
}

// wirings are all ways to run the example: in memory, and on each database that
// the library supports.
func wirings() []wiring {
	all := []wiring{{name: "memory", open: openMemory}}
	for _, server := range matrix.Servers {
		all = append(all, wiring{
			name:      "gorm/" + server.Name,
			open:      func(t testing.TB) fixture { return openGorm(t, server.Gorm(t)) },
			oneWriter: server.OneWriter,
		})
		if server.Again {
			continue
		}
		all = append(all, wiring{
			name:      "sql/" + server.Name,
			open:      func(t testing.TB) fixture { return openSQL(t, server.Gorm(t)) },
			oneWriter: server.OneWriter,
		}, wiring{
			name:      "ent/" + server.Name,
			open:      func(t testing.TB) fixture { return openEnt(t, server.Open(entDSN(t, server))) },
			oneWriter: server.OneWriter,
		})
		if server.Pgx {
			all = append(all, wiring{
				name: "pgx/" + server.Name,
				open: func(t testing.TB) fixture { return openPgx(t, server.Gorm(t)) },
			})
		}
		for name, driver := range server.Drivers {
			all = append(all, wiring{
				name: "sql/" + server.Name + "/" + name,
				open: func(t testing.TB) fixture { return openSQL(t, driver.Open(t, server.New(t))) },
			}, wiring{
				name: "ent/" + server.Name + "/" + name,
				open: func(t testing.TB) fixture { return openEnt(t, driver.Open(t, entDSN(t, server))) },
			})
		}
	}
	return all
}

// everywhere runs a test on each wiring.
func everywhere(t *testing.T, test func(t *testing.T, w wiring)) {
	for _, w := range wirings() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

// outbox is what every outbox of the library is at once.
type outbox interface {
	persistence.Transactor
	persistence.OutboxStore
	persistence.OutboxCursorStore
	persistence.CursorAdmin
	persistence.IdempotencyStore
}

// fixture is the example in an empty database.
type fixture struct {
	ports  app.Ports
	outbox outbox
	// table reads the outbox table: its columns, and each row's values as text
	// by column, in the order of their stamps.
	table func(testing.TB) (columns []string, rows []map[string]string)
}

func (f fixture) app() *app.App { return app.New(f.ports) }

// register creates a user with two API keys.
func (f fixture) register(t testing.TB, userID string) {
	t.Helper()
	require.NoError(t, f.app().Register(t.Context(), userID, userID+"-key-1", userID+"-key-2"))
}

// status returns whether the user is suspended, as others see it.
func (f fixture) status(t testing.TB, userID string) domain.Status {
	t.Helper()
	user, err := f.ports.Users.Find(t.Context(), userID)
	require.NoError(t, err)
	return user.Status
}

// wantKeys asserts how often each of the user's two keys was revoked.
func (f fixture) wantKeys(t testing.TB, userID string, revocations int) {
	t.Helper()
	keys, err := f.ports.APIKeys.OfUser(t.Context(), userID)
	require.NoError(t, err)
	var want []domain.APIKey
	for _, id := range []string{userID + "-key-1", userID + "-key-2"} {
		want = append(want, domain.APIKey{ID: id, UserID: userID, Revoked: revocations > 0, Revocations: revocations})
	}
	require.Equal(t, want, keys)
}

// wantEvents asserts how many rows the outbox table has.
func (f fixture) wantEvents(t testing.TB, n int) {
	t.Helper()
	_, rows := f.table(t)
	require.Len(t, rows, n)
}

// dispatcher returns a dispatcher with the application's handlers.
func (f fixture) dispatcher(t testing.TB, idempotency persistence.IdempotencyStore) *events.Dispatcher {
	t.Helper()
	d := events.NewDispatcher(f.outbox, f.outbox, f.outbox, idempotency)
	require.NoError(t, f.app().Subscribe(d))
	return d
}

// wantPass makes a pass and asserts how many events it settles.
func (f fixture) wantPass(t testing.TB, d *events.Dispatcher, settled int) {
	t.Helper()
	f.settled(t)
	n, err := d.RunOnce(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, settled, n)
}

// settled waits until a cursor sees all that is committed. No producer may be
// open.
func (f fixture) settled(t testing.TB) {
	t.Helper()
	committed, err := f.outbox.ReadWindow(t.Context(), persistence.WindowRead{Limit: 1000})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the safe mark may follow the clock in steps
		seen, err := f.outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1000)
		return err == nil && len(seen) >= len(committed.Records)
	}, patience, 5*time.Millisecond)
}

// rewind moves the cursor back to the beginning.
func (f fixture) rewind(t testing.TB) {
	t.Helper()
	require.NoError(t, f.outbox.Rewind(t.Context(), events.DefaultName, persistence.Cursor{}))
}

// forgetful writes no marker and finds none: the wrong store, for controls.
type forgetful struct{ persistence.IdempotencyStore }

func (forgetful) Record(_ context.Context, markers ...persistence.Marker) ([]bool, error) {
	recorded := make([]bool, len(markers))
	for i := range recorded {
		recorded[i] = true
	}
	return recorded, nil
}

func (forgetful) RecordNew(context.Context, persistence.Marker) error { return nil }

func (forgetful) Applied(_ context.Context, markers ...persistence.Marker) ([]bool, error) {
	return make([]bool, len(markers)), nil
}
