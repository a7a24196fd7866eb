package matrix

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/pgxtx"
	"github.com/onward-go/outbox/testdata/servers"
)

// beginning is an outbox whose round trips are counted.
func beginning(t *testing.T) (*pgxtx.Outbox, *pgxpool.Pool, *flights) {
	var sent flights
	config := pgxConfig(t, servers.CreateDatabase(t, servers.Get(t, servers.Postgres)))
	config.MaxConns = 1
	config.ConnConfig.DialFunc = sent.dial
	pool := openPgx(t, config)
	outbox := pgxtx.New(pool)
	require.NoError(t, outbox.Migrate(t.Context()))
	_, err := pool.Exec(t.Context(), "CREATE TABLE notes (id text)")
	require.NoError(t, err)
	return outbox, pool, &sent
}

const noteOf = "INSERT INTO notes VALUES ($1)"

func TestPgxtxBeginsWithTheFirstStatement(t *testing.T) {
	t.Parallel()
	outbox, pool, sent := beginning(t)
	publisher := events.NewPublisher(outbox)
	var flights int64
	for range 2 { // the first time, pgx prepares the statements
		before := sent.Load()
		require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
			if err := insertNote(ctx, pgxtx.Tx(ctx), "a"); err != nil {
				return err
			}
			return publisher.Publish(ctx, newEvents(1)...)
		}))
		flights = sent.Load() - before
	}
	require.Equal(t, int64(3), flights, "the change, the event, and the COMMIT")
	require.Equal(t, []string{"a", "a"}, column(t, pool, "notes"))
}

func TestPgxtxWhateverBeginsIsInTheTransaction(t *testing.T) {
	t.Parallel()
	outbox, pool, _ := beginning(t)
	errBack := errors.New("back")
	for name, first := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"arguments": func(ctx context.Context, tx pgx.Tx) error {
			return insertNote(ctx, tx, "a")
		},
		"named arguments": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO notes VALUES (@id)", pgx.NamedArgs{"id": "a"})
			return err
		},
		"an option": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, noteOf, pgx.QueryExecModeSimpleProtocol, "a")
			return err
		},
		"two statements": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO notes VALUES ('a'); INSERT INTO notes VALUES ('b')")
			return err
		},
		"a row": func(ctx context.Context, tx pgx.Tx) error {
			var id string
			return tx.QueryRow(ctx, noteOf+" RETURNING id", "a").Scan(&id)
		},
		"a batch": func(ctx context.Context, tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue(noteOf, "a")
			return tx.SendBatch(ctx, &batch).Close()
		},
		"a copy": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"id"}, pgx.CopyFromRows([][]any{{"a"}}))
			return err
		},
		"a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				return insertNote(ctx, tx, "a")
			})
		},
		"the connection": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, noteOf, "a")
			return err
		},
	} {
		err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
			tx := pgxtx.Tx(ctx)
			if err := first(ctx, tx); err != nil {
				return err
			}
			return errors.Join(insertNote(ctx, tx, "second"), errBack)
		})
		require.ErrorIs(t, err, errBack, name)
		require.NotContains(t, err.Error(), "\n", name)
		require.Empty(t, column(t, pool, "notes"), name)
	}
}

func TestPgxtxAFailingFirstStatementIsTheUsers(t *testing.T) {
	t.Parallel()
	outbox, pool, _ := beginning(t)
	err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
		_, err := pgxtx.Tx(ctx).Exec(ctx, "INSERT INTO elsewhere VALUES ($1)", "a")
		return err
	})
	require.ErrorContains(t, err, "elsewhere")
	err = outbox.Atomically(t.Context(), func(ctx context.Context) error {
		if err := outbox.Atomically(ctx, func(ctx context.Context) error { // within a savepoint
			_, err := pgxtx.Tx(ctx).Exec(ctx, "INSERT INTO notes SELECT id FROM notes WHERE 1 / $1::int = 1", 0)
			return err
		}); err == nil {
			return errors.New("it did not fail")
		}
		return insertNote(ctx, pgxtx.Tx(ctx), "a")
	})
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, column(t, pool, "notes"))
}
