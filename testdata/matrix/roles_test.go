package matrix

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/persistence"
)

// publish is what a producer does.
func (r *roles) publish(db *gorm.DB, evts ...events.Event) error {
	outbox := gormtx.New(db, r.options...)
	return outbox.Atomically(r.t.Context(), func(ctx context.Context) error {
		if err := gormtx.Tx(ctx).Exec("INSERT INTO users (id, status) VALUES (?, 'suspended')", events.NewID()[:20]).Error; err != nil {
			return err
		}
		return events.NewPublisher(outbox).Publish(ctx, evts...)
	})
}

// produce has a producer publish in each way, with a dedup key that is taken as
// well.
func (r *roles) produce(db *gorm.DB) error {
	key := events.NewID()
	if err := r.publish(db, newEvents(1)...); err != nil {
		return err
	}
	evts := newEvents(3)
	evts[0].DedupKey = key
	evts[1].DedupKey = key + "-2"
	if err := r.publish(db, evts...); err != nil {
		return err
	}
	again := newEvents(2)
	again[0].DedupKey, again[1].DedupKey = key, key+"-3"
	if err := r.publish(db, again...); !errors.Is(err, persistence.ErrDuplicate) {
		return fmt.Errorf("the key is taken: %w", err)
	}
	return nil
}

// dispatch has a dispatcher of a new name do all that one does: handlers that
// succeed, fail and give up, batches, dead letters, and the operator's hand.
func (r *roles) dispatch(db *gorm.DB) error {
	ctx := r.t.Context()
	outbox := gormtx.New(db, r.options...)
	name := events.NewID()
	d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithName(name), events.WithMaxAttempts(2))
	calls := 0
	err := errors.Join(
		d.Subscribe("t", "a-effects "+name, func(ctx context.Context, evt events.Event) error {
			return gormtx.Tx(ctx).Exec("INSERT INTO api_keys (id) VALUES (?)", events.NewID()[:20]).Error
		}),
		d.Subscribe("t", "b-fails "+name, func(context.Context, events.Event) error {
			if calls++; calls == 1 {
				return errors.New("the first time")
			}
			return nil
		}),
		d.Subscribe("t", "c-gives-up "+name, func(context.Context, events.Event) error { return events.Permanent(errors.New("never")) }),
		d.SubscribeBatch("t", "d-batch "+name, func(context.Context, []events.Event) error { return nil }),
	)
	for err == nil {
		n := 0
		if n, err = d.RunOnce(ctx, 100); errors.Is(err, events.ErrDeadLettered) || err != nil && strings.Contains(err.Error(), "the first time") {
			err = denied(err)
			continue
		}
		if n == 0 {
			break
		}
	}
	if err != nil {
		return err
	}
	letters := events.NewDeadLetters(outbox, outbox)
	page, err := letters.List(ctx, persistence.DeadLetterQuery{Dispatcher: name, State: persistence.DeadLetterDead, Limit: 2})
	if err != nil || len(page) == 0 {
		return fmt.Errorf("%d dead letters: %w", len(page), err)
	}
	if err := letters.Requeue(ctx, page[0].Marker()); err != nil {
		return err
	}
	_, err = d.RunOnce(ctx, 100)
	if err := denied(err); err != nil {
		return err
	}
	if err := letters.Discard(ctx, page[0].Marker()); err != nil {
		return err
	}
	if _, err := letters.Purge(ctx, time.Now().Add(time.Hour)); err != nil {
		return err
	}
	// Counts are saved when ten seconds have passed, for which no test waits.
	lease, err := outbox.Acquire(ctx, name, "test", time.Minute)
	if err != nil {
		return err
	}
	counts := []persistence.Bucket{{Start: time.Now().UTC().Truncate(persistence.BucketWidth), Rows: 1}}
	return errors.Join(outbox.Save(ctx, lease, persistence.Progress{Counts: counts}), outbox.Release(ctx, lease),
		outbox.Rewind(ctx, name, persistence.Cursor{}), outbox.Forget(ctx, name))
}

// denied is nil for errors that are none of rights.
func denied(err error) error {
	if err != nil && (strings.Contains(err.Error(), "denied")) {
		return err
	}
	return nil
}

func onRoles(t *testing.T, f func(t *testing.T, r *roles)) {
	for _, server := range Servers {
		if server.Kind == nil { // SQLite has no users
			continue
		}
		t.Run(server.Name, func(t *testing.T) { f(t, newRoles(t, server)) })
	}
}

func TestRolesHaveWhatTheyNeedAndNoMore(t *testing.T) {
	onRoles(t, func(t *testing.T, r *roles) {
		producer, dispatcher, owner := r.connect("producer"), r.connect("dispatcher"), r.connect("owner")
		require.NoError(t, r.produce(producer))
		require.NoError(t, r.dispatch(dispatcher))
		r.retain(owner)
		for role, db := range map[persistence.Role]*gorm.DB{
			persistence.RoleProducer: producer, persistence.RoleDispatcher: dispatcher, persistence.RoleRetention: owner,
		} {
			require.Empty(t, r.lacks(db, role))
		}

		outbox := r.table("outbox")
		change := []string{"UPDATE " + outbox + " SET payload = ''", "DELETE FROM " + outbox, "TRUNCATE " + outbox, "DROP TABLE " + outbox}
		requireRefused(t, producer, append(change, "SELECT * FROM "+outbox, "SELECT count(*) FROM "+outbox, "SELECT id FROM "+outbox,
			"SELECT * FROM "+r.table("outbox_dead_letters"), "SELECT * FROM "+r.table("outbox_cursors"))...)
		requireRefused(t, dispatcher, append(change,
			"INSERT INTO "+outbox+" (id, aggregate_type, aggregate_id, event_type, payload) VALUES ('x', 'x', 'x', 'x', 'x')",
			"DELETE FROM "+r.table("outbox_idempotency"), "UPDATE "+r.table("outbox_schema")+" SET version = 2 WHERE version > 0")...)
		if r.server.Pgx {
			partition := "outbox.outbox_p" + time.Now().UTC().Format("2006_01")
			requireRefused(t, producer, "SELECT * FROM "+partition, "INSERT INTO "+outbox+" (id, aggregate_type, aggregate_id, event_type) VALUES ('x', 'x', 'x', 'x') RETURNING *")
			requireRefused(t, dispatcher, "DELETE FROM "+partition)
		}
		for _, err := range []error{r.dispatch(producer), r.publish(dispatcher, newEvents(1)...), gormtx.Migrate(t.Context(), producer, gormtx.WithTablePrefix("x_"))} {
			require.Error(t, err)
		}
	})
}

func requireRefused(t *testing.T, db *gorm.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		err := db.Exec(s).Error
		require.True(t, refused(err), "%s: %v", s, err)
	}
}

// retain has the owner make and drop partitions, and free dedup keys.
func (r *roles) retain(owner *gorm.DB) {
	r.t.Helper()
	ctx := r.t.Context()
	pool, err := owner.DB()
	require.NoError(r.t, err)
	naming := facetest.Naming{}
	options := []gormtx.RetentionOption{gormtx.WithNoConsumers(), gormtx.WithKeepKeys(time.Microsecond)}
	for _, o := range r.options {
		options = append(options, o)
		naming.Schema = "outbox"
	}
	require.NoError(r.t, facetest.Partition(ctx, pool, owner.Name(), naming, startOfMonth(-2)))
	report, err := gormtx.RunRetention(ctx, owner, 0, options...)
	require.NoError(r.t, err)
	require.Len(r.t, report.Dropped, 2, "of events and of markers")
	require.Positive(r.t, report.PurgedKeys)
	report, err = gormtx.New(owner, r.options...).EnsurePartitions(ctx, persistence.MonthsAhead+2, persistence.RetentionOptions{})
	require.NoError(r.t, err)
	require.Len(r.t, report.Created, 4, "two of each")
}

var grant = regexp.MustCompile(`^GRANT (.+) ON (.+) TO (.+)$`)

// lacks returns what a validation finds, a line each.
func (r *roles) lacks(db *gorm.DB, role persistence.Role) string {
	r.t.Helper()
	v, err := gormtx.New(db, r.options...).Validate(r.t.Context(), role)
	return problems(r.t, v, err)
}

// Without any one of the rights something fails, so none is there in vain; and a
// validation tells.
func TestNoRightIsThereInVain(t *testing.T) {
	onRoles(t, func(t *testing.T, r *roles) {
		for _, g := range r.grants {
			m := grant.FindStringSubmatch(g)
			require.NotNil(t, m, g)
			for _, right := range strings.Split(m[1], ", ") {
				if r.server.Name == "mariadb" && right == "UPDATE" && m[2] == "outbox_fence" {
					continue // a locking read needs it on MySQL
				}
				r.exec("REVOKE " + right + " ON " + m[2] + " FROM " + m[3])
				// Pools of their own, since a store checks the tables once.
				err := errors.Join(r.produce(r.connect("producer")), r.dispatch(r.connect("dispatcher")))
				require.Error(t, err, "%s on %s, of %s", right, m[2], m[3])
				found := r.lacks(r.connect("producer"), persistence.RoleProducer) + r.lacks(r.connect("dispatcher"), persistence.RoleDispatcher)
				require.Contains(t, found, "the user may not", "%s on %s, of %s", right, m[2], m[3])
				r.exec("GRANT " + right + " ON " + m[2] + " TO " + m[3])
			}
		}
		require.NoError(t, errors.Join(r.produce(r.connect("producer")), r.dispatch(r.connect("dispatcher"))))
	})
}
