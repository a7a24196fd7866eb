package matrix

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

const day = 24 * time.Hour

// onPartitions runs a test on every server whose tables have partitions.
func onPartitions(t *testing.T, test func(t *testing.T, server Server, db *gorm.DB)) {
	for _, server := range Servers {
		if server.Name == "sqlite" {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			test(t, server, Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard}))
		})
	}
}

// startOfMonth returns the start of the month that is months after this one.
func startOfMonth(months int) time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month()+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
}

// aged is an outbox whose partitions are those of its past.
type aged struct {
	*gormtx.Outbox
	t      *testing.T
	db     *gorm.DB
	prefix string
}

// newAged makes an outbox with one partition up to each of the ends, and the
// open-ended one.
func newAged(t *testing.T, db *gorm.DB, prefix string, ends ...time.Time) aged {
	t.Helper()
	a := aged{gormtx.New(db, gormtx.WithTablePrefix(prefix)), t, db, prefix}
	require.NoError(t, a.Migrate(t.Context()))
	for _, table := range []string{prefix + "outbox_idempotency", prefix + "outbox"} {
		if db.Name() == "mysql" {
			a.partitionMySQL(table, ends)
		} else {
			a.partitionPostgres(table, ends)
		}
	}
	return a
}

func (a aged) partitionMySQL(table string, ends []time.Time) {
	var parts strings.Builder
	for _, end := range ends {
		fmt.Fprintf(&parts, "PARTITION u%s VALUES LESS THAN (TO_DAYS('%s')), ", end.Format("2006_01"), end.Format(time.DateOnly))
	}
	a.exec("ALTER TABLE %s PARTITION BY RANGE (TO_DAYS(created_time)) (%sPARTITION pmax VALUES LESS THAN MAXVALUE)", table, parts.String())
}

func (a aged) partitionPostgres(table string, ends []time.Time) {
	for _, p := range a.partitions(table) {
		a.exec("DROP TABLE %s", p)
	}
	from := "MINVALUE"
	for _, end := range ends {
		to := end.Format("'2006-01-02 UTC'")
		a.exec("CREATE TABLE %s_u%s PARTITION OF %[1]s FOR VALUES FROM (%[3]s) TO (%[4]s)", table, end.Format("2006_01"), from, to)
		from = to
	}
	a.exec("CREATE TABLE %s_pmax PARTITION OF %[1]s FOR VALUES FROM (%s) TO (MAXVALUE)", table, from)
}

func (a aged) exec(format string, args ...any) {
	a.t.Helper()
	require.NoError(a.t, a.db.Exec(fmt.Sprintf(format, args...)).Error)
}

// partitions returns the partitions of a table, and tables that look like some.
func (a aged) partitions(table string) (names []string) {
	a.t.Helper()
	query := "SELECT partition_name FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = ? ORDER BY partition_ordinal_position"
	if a.db.Name() == "postgres" {
		query = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ ('^' || ? || '_[pu]') ORDER BY relname"
	}
	require.NoError(a.t, a.db.Raw(query, table).Scan(&names).Error)
	return names
}

// insert writes a row as if it had been published at a time.
func (a aged) insert(id string, at time.Time) {
	a.t.Helper()
	require.NoError(a.t, a.db.Exec("INSERT INTO "+a.prefix+"outbox (id, aggregate_type, aggregate_id, event_type, payload, created_time) VALUES (?, 'a', '1', 't', '', ?)",
		id, at.UTC().Format("2006-01-02 15:04:05.000000")+map[string]string{"postgres": "Z"}[a.db.Name()]).Error)
}

func (a aged) publish(ctx context.Context, id string) error {
	return a.Atomically(ctx, func(ctx context.Context) error {
		return a.Append(ctx, persistence.Record{ID: id, AggregateType: "a", AggregateID: "1", EventType: "t"})
	})
}

// rows returns what is in the outbox, whoever may read it.
func (a aged) rows() (ids []string) {
	a.t.Helper()
	require.NoError(a.t, a.db.Raw("SELECT id FROM "+a.prefix+"outbox ORDER BY created_time, id").Scan(&ids).Error)
	return ids
}

// retain runs retention. Nobody reads these outboxes.
func (a aged) retain(ctx context.Context, keep time.Duration, opts ...gormtx.RetentionOption) (persistence.RetentionReport, error) {
	return gormtx.RunRetention(ctx, a.db, keep, append(opts, gormtx.WithTablePrefix(a.prefix), gormtx.WithNoConsumers())...)
}
