package matrix

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/schema"
)

// planNode is a node of EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Loops    float64    `json:"Actual Loops"`
	Hit      int        `json:"Shared Hit Blocks"`
	Read     int        `json:"Shared Read Blocks"`
	Plans    []planNode `json:"Plans"`
}

func (n planNode) walk(visit func(planNode)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

// fill makes 100 monthly partitions with a million rows.
func fill(t *testing.T, db *gorm.DB) (first time.Time) {
	first = time.Date(2018, 1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, db.Exec(`
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox'::regclass LOOP
    EXECUTE 'DROP TABLE ' || name;
  END LOOP;
  FOR i IN 0..99 LOOP
    EXECUTE format('CREATE TABLE outbox_filled_%s PARTITION OF outbox FOR VALUES FROM (%L) TO (%L)', i,
      timestamptz '2018-01-01 00:00+00' + make_interval(months => i), timestamptz '2018-01-01 00:00+00' + make_interval(months => i + 1));
  END LOOP;
  INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, created_time)
  SELECT 'id-' || n, 'a', '1', 't', timestamptz '2018-01-01 00:00+00' + n * interval '260 seconds' FROM generate_series(1, 1000000) AS n;
END $$`).Error)
	require.NoError(t, db.Exec("VACUUM ANALYZE outbox").Error)
	return first
}

func TestPostgresReadAfterPrunesAndReadsAnIndexRange(t *testing.T) {
	db, _ := newPostgres(t)
	require.NoError(t, db.Exec("SET timezone = 'UTC'").Error)
	first := fill(t, db)
	last := first.Add(1_000_000 * 260 * time.Second)
	statement := sqlstore.Postgres.Text("ReadAfter", schema.Naming{})
	for _, cache := range []string{"force_custom_plan", "force_generic_plan"} {
		for name, after := range map[string]time.Time{
			"beginning": {}, "half-way": first.Add(last.Sub(first) / 2), "caught up": last.Add(-time.Hour),
		} {
			t.Run(cache+"/"+name, func(t *testing.T) {
				plan := explain(t, db, cache, statement, after, last.Add(time.Hour))
				partitions := 0
				plan.walk(func(n planNode) {
					require.NotEqual(t, "Seq Scan", n.Type)
					require.NotContains(t, n.Type, "Bitmap")
					if n.Relation != "" && strings.HasPrefix(n.Relation, "outbox") && n.Loops > 0 {
						require.Equal(t, "Index Scan", n.Type)
						partitions++
					}
				})
				require.NotZero(t, partitions)
				require.LessOrEqual(t, partitions, 2, "100 rows are in one partition, or at the border of two")
				require.Less(t, plan.Hit+plan.Read, 60, "blocks read for 100 rows")
			})
		}
	}
}

// explain runs the statement as a prepared one and returns its plan.
func explain(t *testing.T, db *gorm.DB, cache, statement string, after, mark time.Time) planNode {
	t.Helper()
	var text string
	require.NoError(t, db.Connection(func(conn *gorm.DB) error {
		for _, s := range []string{
			"SET plan_cache_mode = " + cache,
			"PREPARE read_after (timestamptz, text, timestamptz, bigint) AS " + statement,
		} {
			if err := conn.Exec(s).Error; err != nil {
				return err
			}
		}
		defer conn.Exec("DEALLOCATE read_after")
		literal := func(at time.Time) string { return "'" + at.UTC().Format("2006-01-02 15:04:05.999999-07") + "'" }
		return conn.Raw("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE read_after (" +
			literal(after) + ", '', " + literal(mark) + ", 100)").Row().Scan(&text)
	}))
	var plans []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan
}
