package entiam_test

import (
	"context"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/domain"
	"github.com/onward-go/outbox/testdata/iam/entiam"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/outbox"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent/user"
)

var _ sqltx.Transaction = (*ent.Tx)(nil)

var errRollback = errors.New("roll back")

func event(id string) events.Event {
	return events.Event{ID: id, Type: "iam.v1.UserSuspended", AggregateType: "User", AggregateID: id}
}

// users and events are the ids that are in the database, as ent reads them.
func (db database) users(t testing.TB) []string {
	t.Helper()
	ids, err := db.client.User.Query().Order(user.ByID()).IDs(t.Context())
	require.NoError(t, err)
	return ids
}

func (db database) events(t testing.TB) (ids []string) {
	t.Helper()
	rows, err := db.client.Outbox.Query().Order(outbox.ByCreatedTime(), outbox.ByID()).All(t.Context())
	require.NoError(t, err)
	for _, row := range rows {
		ids = append(ids, row.ID)
	}
	return ids
}

func TestATransactionOfEntTakesTheEventWithIt(t *testing.T) {
	for kind, of := range map[string]func(db database) *ent.Client{
		"plain": func(db database) *ent.Client { return db.client },
		"debug": func(db database) *ent.Client {
			return ent.NewClient(db.driver(), ent.Log(func(...any) {}), ent.Debug())
		},
	} {
		t.Run(kind, func(t *testing.T) {
			everywhere(t, func(t *testing.T, db database) {
				publisher := events.NewPublisher(db.outbox)
				work := func(id string) (*ent.Tx, context.Context) {
					tx, err := of(db).Tx(t.Context())
					require.NoError(t, err)
					ctx, err := db.outbox.WithTx(t.Context(), tx)
					require.NoError(t, err)
					require.NoError(t, tx.User.Create().SetID(id).SetStatus(domain.Active).Exec(ctx))
					require.NoError(t, publisher.Publish(ctx, event(id)))
					require.ErrorIs(t, db.outbox.Atomically(ctx, func(ctx context.Context) error {
						require.NoError(t, publisher.Publish(ctx, event(id+"-savepoint")))
						require.NoError(t, tx.User.Create().SetID(id+"-savepoint").SetStatus(domain.Active).Exec(ctx))
						return errRollback
					}), errRollback)

					// Ent's transaction and what is made of its context are one.
					require.NoError(t, entiam.Tx(ctx, db.dialect).User.UpdateOneID(id).SetStatus(domain.Suspended).Exec(ctx))
					changed, err := tx.User.Get(ctx, id)
					require.NoError(t, err)
					require.Equal(t, domain.Suspended, changed.Status)
					var status domain.Status
					require.NoError(t, sqltx.Tx(ctx).QueryRowContext(ctx, "SELECT status FROM users").Scan(&status))
					require.Equal(t, domain.Suspended, status)
					return tx, ctx
				}
				late := func(ctx context.Context) {
					require.ErrorIs(t, publisher.Publish(ctx, event("late")), persistence.ErrNoTransaction)
					require.Error(t, entiam.Tx(ctx, db.dialect).User.Create().SetID("late").SetStatus(domain.Active).Exec(ctx))
				}

				tx, ctx := work("rolled-back")
				require.NoError(t, tx.Rollback())
				late(ctx)
				require.Empty(t, db.events(t))
				require.Empty(t, db.users(t))

				tx, ctx = work("committed")
				require.NoError(t, tx.Commit())
				late(ctx)
				require.Equal(t, []string{"committed"}, db.events(t))
				require.Equal(t, []string{"committed"}, db.users(t))
			})
		})
	}
}

// While ent's transaction is open, nobody else sees its event. Where there is
// one writer, others read beside it as well.
func TestAnEventShowsWhenEntCommits(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		tx, err := db.client.Tx(t.Context())
		require.NoError(t, err)
		ctx, err := db.outbox.WithTx(t.Context(), tx)
		require.NoError(t, err)
		require.NoError(t, events.NewPublisher(db.outbox).Publish(ctx, event("a")))
		require.Empty(t, db.events(t))
		inside, err := tx.Outbox.Query().Count(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, inside)
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"a"}, db.events(t))
	})
}

// Where a server may end a transaction by itself, the session goes on in
// autocommit, and an event would commit without its change.
func TestATransactionOfEntThatHasEndedSilentlyTakesNoEvent(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		if db.dialect == dialect.Postgres {
			t.Skip("PostgreSQL ends no transaction by itself and goes on")
		}
		tx, err := db.client.Tx(t.Context())
		require.NoError(t, err)
		ctx, err := db.outbox.WithTx(t.Context(), tx)
		require.NoError(t, err)
		require.NoError(t, tx.User.Create().SetID("a").SetStatus(domain.Active).Exec(ctx))
		_, err = tx.ExecContext(ctx, "ROLLBACK")
		require.NoError(t, err)
		require.ErrorIs(t, events.NewPublisher(db.outbox).Publish(ctx, event("a")), persistence.ErrNoTransaction)
		_ = tx.Rollback()
		require.Empty(t, db.events(t))
		require.Empty(t, db.users(t))
	})
}

// Likewise where the example's transactor began it, and its function swallows
// the error: a commit would say nothing.
func TestTheTransactorTellsThatAServerHasEndedItsTransaction(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		if db.dialect != dialect.MySQL {
			t.Skip("only there, a commit says nothing")
		}
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			require.NoError(t, db.client.User.Create().SetID(id).SetStatus(domain.Active).Exec(t.Context()))
		}
		suspend := func(client *ent.Client, id string) error {
			return client.User.UpdateOneID(id).SetStatus(domain.Suspended).Exec(t.Context())
		}
		// It changes more, so the other one is the victim of the deadlock.
		heavy, err := db.client.Tx(t.Context())
		require.NoError(t, err)
		for _, id := range []string{"b", "c", "d", "e"} {
			require.NoError(t, suspend(heavy.Client(), id))
		}

		transactor := entiam.Wire(db.client, db.dialect, db.outbox).Transactor
		survived := make(chan error, 1)
		err = transactor.Atomically(t.Context(), func(ctx context.Context) error {
			client := entiam.Tx(ctx, db.dialect)
			require.NoError(t, suspend(client, "a"))
			go func() { survived <- suspend(heavy.Client(), "a") }()
			require.Error(t, suspend(client, "b"))
			return nil
		})
		require.ErrorContains(t, err, "Deadlock")
		require.NoError(t, <-survived)
		require.NoError(t, heavy.Commit())
	})
}

func TestAPanicRollsTheTransactorBack(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		transactor := entiam.Wire(db.client, db.dialect, db.outbox).Transactor
		require.PanicsWithValue(t, "boom", func() {
			_ = transactor.Atomically(t.Context(), func(ctx context.Context) error {
				require.NoError(t, events.NewPublisher(db.outbox).Publish(ctx, event("a")))
				panic("boom")
			})
		})
		require.Empty(t, db.events(t))
		require.NoError(t, transactor.Atomically(t.Context(), func(ctx context.Context) error {
			return events.NewPublisher(db.outbox).Publish(ctx, event("a"))
		}))
		require.Equal(t, []string{"a"}, db.events(t))
	})
}

// What ent does in several statements, and so in a transaction of its own, takes
// part in that of Atomically.
func TestEntTakesPartInAtomically(t *testing.T) {
	everywhere(t, func(t *testing.T, db database) {
		publisher := events.NewPublisher(db.outbox)
		work := func(ctx context.Context) error {
			client := entiam.Tx(ctx, db.dialect)
			require.NoError(t, client.User.CreateBulk(
				client.User.Create().SetID("a").SetStatus(domain.Active),
				client.User.Create().SetID("b").SetStatus(domain.Active),
			).Exec(ctx))
			require.NoError(t, client.User.Update().SetStatus(domain.Suspended).Exec(ctx))
			tx, err := client.Tx(ctx)
			require.NoError(t, err)
			updated, err := tx.User.UpdateOneID("b").SetStatus(domain.Active).Save(ctx)
			require.NoError(t, err)
			require.Equal(t, domain.Active, updated.Status)
			require.NoError(t, tx.Commit())
			return publisher.Publish(ctx, event("a"), event("b"))
		}
		require.ErrorIs(t, db.outbox.Atomically(t.Context(), func(ctx context.Context) error {
			return errors.Join(work(ctx), errRollback)
		}), errRollback)
		require.Empty(t, db.users(t))
		require.Empty(t, db.events(t))

		require.NoError(t, db.outbox.Atomically(t.Context(), work))
		require.Equal(t, []string{"a", "b"}, db.users(t))
		require.Equal(t, []string{"a", "b"}, db.events(t))
	})
}

func TestEntOutsideATransactionFailsClosed(t *testing.T) {
	_, err := entiam.Tx(t.Context(), dialect.SQLite).User.Create().SetID("a").SetStatus(domain.Active).Save(t.Context())
	require.ErrorIs(t, err, persistence.ErrNoTransaction)
	require.ErrorIs(t, entiam.Tx(t.Context(), dialect.SQLite).User.Update().SetStatus(domain.Active).Exec(t.Context()), persistence.ErrNoTransaction)
}
