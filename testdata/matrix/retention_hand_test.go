package matrix

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// newAgedPostgres is an outbox of PostgreSQL with two months that have ended long ago.
func newAgedPostgres(t *testing.T) aged {
	db := Open(t, postgres.Open(PostgresDSN(t)), &gorm.Config{Logger: logger.Discard})
	a := newAged(t, db, "", startOfMonth(-24), startOfMonth(-23), startOfMonth(-22))
	for month := -25; month < -22; month++ {
		a.insert(fmt.Sprint(month), startOfMonth(month))
	}
	return a
}

// A former release marks what it is about to drop, and drops what is marked and
// detached, whoever did that.
func TestPostgresRetentionTakesMarksOff(t *testing.T) {
	t.Parallel()
	a := newAgedPostgres(t)
	months := a.partitions("outbox")
	mark := "COMMENT ON TABLE %s IS 'retention drops this partition of outbox'"
	a.exec(mark, months[1])
	a.exec(mark, months[2])
	a.exec("ALTER TABLE outbox DETACH PARTITION %s", months[1])
	_, err := a.retain(t.Context(), 3650*day)
	require.NoError(t, err)
	var marked []string
	require.NoError(t, a.db.Raw("SELECT objoid::regclass::text FROM pg_description WHERE classoid = 'pg_class'::regclass AND description LIKE 'retention%'").Scan(&marked).Error)
	require.Equal(t, []string{months[1]}, marked, "what is no partition is not ours")
	a.exec("ALTER TABLE outbox DETACH PARTITION %s", months[2])
	report, err := a.retain(t.Context(), 30*day)
	require.NoError(t, err)
	require.Len(t, report.Dropped, 4)
	for _, kept := range months[1:3] {
		var n int64
		require.NoError(t, a.db.Raw("SELECT count(*) FROM "+kept).Scan(&n).Error)
		require.EqualValues(t, 1, n)
	}
}

// What keeps one month does not keep the others.
func TestPostgresRetentionNamesWhatKeepsAMonth(t *testing.T) {
	t.Parallel()
	a := newAgedPostgres(t)
	months := a.partitions("outbox")
	for name, kept := range map[string]struct {
		make, undo []string
		named      []string
	}{
		"a view": {
			[]string{"CREATE VIEW report AS SELECT * FROM " + months[1]}, []string{"DROP VIEW report"},
			[]string{"view report", "detach the partition to keep it"},
		},
		"a foreign key on the month": {
			[]string{"CREATE TABLE mine (at timestamptz, event text, CONSTRAINT of_the_month FOREIGN KEY (at, event) REFERENCES " + months[1] + " (created_time, id))"},
			[]string{"DROP TABLE mine"},
			[]string{"of_the_month on table mine", "detach the partition to keep it"},
		},
		"a foreign key on the outbox": {
			[]string{
				"CREATE TABLE mine (at timestamptz, event text, FOREIGN KEY (at, event) REFERENCES outbox (created_time, id))",
				"INSERT INTO mine SELECT created_time, id FROM " + months[1],
			},
			[]string{"DROP TABLE mine"},
			[]string{"delete the rows that refer to its events"},
		},
		"a lock": {
			[]string{"BEGIN", "LOCK TABLE " + months[1] + " IN SHARE UPDATE EXCLUSIVE MODE"}, []string{"ROLLBACK"},
			[]string{"lock timeout"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAgedPostgres(t)
			a.t = t
			pool, err := a.db.DB()
			require.NoError(t, err)
			hand, err := pool.Conn(t.Context())
			require.NoError(t, err)
			defer hand.Close()
			run := func(statements []string) {
				for _, statement := range statements {
					_, err := hand.ExecContext(t.Context(), statement)
					require.NoError(t, err)
				}
			}
			run(kept.make)
			_, err = a.retain(t.Context(), 30*day, gormtx.WithLockTimeout(200*time.Millisecond))
			require.ErrorContains(t, err, "partition "+months[1])
			for _, named := range kept.named {
				require.ErrorContains(t, err, named)
			}
			require.Equal(t, []string{"-25"}, a.rows())
			// Events of now and later have their months all the same, and markers go
			// with their events.
			require.Len(t, a.partitions("outbox"), 6)
			require.Len(t, a.partitions("outbox_idempotency"), 6)
			run(kept.undo)
			_, err = a.retain(t.Context(), 30*day)
			require.NoError(t, err)
			require.Empty(t, a.rows())
			require.Len(t, a.partitions("outbox_idempotency"), 5)
		})
	}
}

func TestRetentionGoesOnBesideAMonthThatStays(t *testing.T) {
	t.Parallel()
	onPartitions(t, func(t *testing.T, _ Server, db *gorm.DB) {
		a := newAged(t, db, "", startOfMonth(-24), startOfMonth(-23), startOfMonth(-22))
		for month := -25; month < -22; month++ {
			a.insert(fmt.Sprint(month), startOfMonth(month))
		}
		stays := startOfMonth(-23).Format("u2006_01")
		c := &crash{after: -1, rewrite: func(query string) string {
			if strings.Contains(query, " outbox ") || strings.Contains(query, `"outbox"`) {
				return strings.ReplaceAll(query, stays, "missing")
			}
			return query
		}}
		options := persistence.RetentionOptions{NoConsumers: true}
		report, err := crashingStore(a, c).DropPartitionsBefore(t.Context(), startOfMonth(-2), options)
		require.ErrorContains(t, err, stays)
		require.Len(t, report.Dropped, 4, "two months, and their markers")
		require.Equal(t, []string{"-24"}, a.rows())
		_, err = a.DropPartitionsBefore(t.Context(), startOfMonth(-2), options)
		require.NoError(t, err)
		require.Empty(t, a.rows())
	})
}

// Somebody has a table, or a partition, of the name of a month that is to be made.
func TestRetentionFindsAnotherName(t *testing.T) {
	t.Parallel()
	onPartitions(t, func(t *testing.T, _ Server, db *gorm.DB) {
		a := newAged(t, db, "", startOfMonth(-1), startOfMonth(1))
		name := startOfMonth(2).Format("p2006_01")
		if db.Name() == "mysql" {
			a.exec("ALTER TABLE outbox REORGANIZE PARTITION u%s INTO (PARTITION %s VALUES LESS THAN (TO_DAYS('%s')))",
				startOfMonth(1).Format("2006_01"), name, startOfMonth(1).Format(time.DateOnly))
		} else {
			name = "outbox_" + name
			a.exec("CREATE TABLE %s (mine integer)", name)
			a.exec("CREATE TYPE outbox_%s AS (mine integer)", startOfMonth(3).Format("p2006_01"))
		}
		report, err := a.retain(t.Context(), 3650*day)
		require.NoError(t, err)
		var names []string
		for _, p := range report.Created {
			if p.Table == "outbox" {
				names = append(names, p.Name)
			}
		}
		require.Len(t, names, 3)
		require.Equal(t, name+"_2", names[1])
		for month := range 5 {
			a.insert(fmt.Sprint(month), startOfMonth(month))
		}
		again, err := a.retain(t.Context(), 3650*day)
		require.NoError(t, err)
		require.Empty(t, again.Created)
	})
}

// Somebody has detached next month, to keep it; the events of that month need a place.
func TestPostgresRetentionMakesAMonthAgain(t *testing.T) {
	t.Parallel()
	db, outbox := newPostgres(t)
	name := startOfMonth(1).Format("outbox_p2006_01")
	require.NoError(t, db.Exec("ALTER TABLE outbox DETACH PARTITION "+name).Error)
	a := aged{outbox, t, db, ""}
	plan, err := a.retain(t.Context(), 3650*day, gormtx.WithDryRun())
	require.NoError(t, err)
	report, err := a.retain(t.Context(), 3650*day)
	require.NoError(t, err)
	require.Equal(t, []persistence.Partition{{Table: "outbox", Name: name + "_2", From: startOfMonth(1), To: startOfMonth(2)}}, report.Created)
	require.Equal(t, plan.Created, report.Created)
	a.insert("next month", startOfMonth(1))
	require.NoError(t, db.Exec("SELECT FROM "+name).Error)
}

// Each sees what the others have done, whatever its sessions' isolation is.
func TestPostgresReplicasRunRetentionAtOnce(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			dsn := PostgresDSN(t) + "&default_transaction_isolation=" + url.PathEscape(isolation)
			a := newAged(t, Open(t, postgres.Open(dsn), &gorm.Config{Logger: logger.Discard}), "", startOfMonth(-2))
			const replicas = 4
			results := make(chan error, replicas)
			for range replicas {
				replica := gormtx.New(Open(t, postgres.Open(dsn), &gorm.Config{Logger: logger.Discard}))
				go func() {
					for months := range 12 {
						if _, err := replica.EnsurePartitions(t.Context(), months, persistence.RetentionOptions{}); err != nil {
							results <- fmt.Errorf("%d months: %w", months, err)
							return
						}
					}
					results <- nil
				}()
			}
			for range replicas {
				require.NoError(t, <-results)
			}
			for month := range 13 {
				a.insert(fmt.Sprint(month), startOfMonth(month))
			}
			require.Len(t, a.partitions("outbox"), 14)
		})
	}
}

// What is older than the oldest partition has been dropped.
func TestPostgresStatusTellsWhereTheOldestPartitionBegins(t *testing.T) {
	t.Parallel()
	a := newAgedPostgres(t)
	status, err := a.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Zero(t, status.Partitions[0].From)
	_, err = a.retain(t.Context(), time.Since(startOfMonth(-24))-time.Hour)
	require.NoError(t, err)
	status, err = a.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, startOfMonth(-24), status.Partitions[0].From)
}

// A run that was killed leaves an end, or a former release a table; somebody has made
// a DEFAULT partition. The rest of the status is told all the same.
func TestPostgresStatusTellsWhatRetentionHasLeft(t *testing.T) {
	t.Parallel()
	db, outbox := newPostgres(t)
	a := aged{outbox, t, db, ""}
	end := startOfMonth(5)
	last := startOfMonth(0)
	for _, p := range a.partitions("outbox") {
		if p != "outbox_pmax" {
			last = last.AddDate(0, 1, 0)
		}
	}
	a.exec("ALTER TABLE outbox_pmax ADD CONSTRAINT outbox_closed CHECK (created_time >= '%s UTC' AND created_time < '%s UTC') NOT VALID",
		last.Format(time.DateOnly), end.Format(time.DateOnly))
	a.exec("CREATE TABLE outbox_p2020_01 (LIKE outbox)")
	a.exec("COMMENT ON TABLE outbox_p2020_01 IS 'retention drops this partition of outbox'")
	status, err := outbox.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Equal(t, end, status.Partitions[0].RefusesFrom.UTC())
	require.Zero(t, status.Partitions[1].RefusesFrom)
	v, err := outbox.Validate(t.Context())
	found := problems(t, v, err)
	require.Contains(t, found, "from which on events are refused: "+end.Format(time.DateOnly))
	require.Contains(t, found, "table outbox_p2020_01 was a partition of outbox")
	_, err = a.retain(t.Context(), 3650*day)
	require.NoError(t, err)
	a.insert("later", end)
	status, err = outbox.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Zero(t, status.Partitions[0].RefusesFrom)

	a.exec("CREATE TABLE outbox_rest PARTITION OF outbox DEFAULT")
	status, err = outbox.ReadStatus(t.Context())
	require.NoError(t, err)
	require.Len(t, status.Partitions, 1)
	require.Equal(t, "outbox_idempotency", status.Partitions[0].Table)
	require.Equal(t, []persistence.StatusPart{persistence.StatusPartitions}, unread(status.OutboxStatus))
	require.Equal(t, "outbox", status.Unread[0].Of)
	require.Contains(t, status.Unread[0].Error, "outbox_rest is a DEFAULT partition")
}
