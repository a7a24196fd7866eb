package matrix

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/schema"
)

func fillPostgres(t *testing.T, s scale) {
	t.Helper()
	table := s.prefix + "outbox"
	require.NoError(t, s.db.Exec("SET timezone = 'UTC'").Error)
	first := s.first.Format(time.DateOnly)
	require.NoError(t, s.db.Exec(fmt.Sprintf(`
DO $$
DECLARE name text;
BEGIN
  FOR name IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '%[1]s'::regclass LOOP
    EXECUTE 'DROP TABLE ' || name;
  END LOOP;
  FOR i IN 0..%[3]d LOOP
    EXECUTE format('CREATE UNLOGGED TABLE %[1]s_filled_%%s PARTITION OF %[1]s FOR VALUES FROM (%%L) TO (%%L)', i,
      timestamptz '%[2]s' + make_interval(months => i), timestamptz '%[2]s' + make_interval(months => i + 1));
  END LOOP;
  EXECUTE format('CREATE UNLOGGED TABLE %[1]s_filled_max PARTITION OF %[1]s FOR VALUES FROM (%%L) TO (MAXVALUE)',
    timestamptz '%[2]s' + make_interval(months => %[3]d + 1));
END $$`, table, first, months-2)).Error)
	const batch = 1_000_000
	for from := 1; from <= s.rows; from += batch {
		require.NoError(t, s.db.Exec(fmt.Sprintf(`
INSERT INTO %s (id, aggregate_type, aggregate_id, event_type, created_time)
SELECT 'id-' || n, 'a', '1', 't', timestamptz '%s' + n * interval '%d microseconds' FROM generate_series(%d, %d) AS n`,
			table, first, s.step.Microseconds(), from, min(from+batch-1, s.rows))).Error)
	}
	require.NoError(t, s.db.Exec("VACUUM ANALYZE "+table).Error)
}

// postgresBlocks returns how many blocks each statement reads, planned for its
// parameters or for any, and looks at the plans.
func postgresBlocks(t *testing.T, s scale, p place) map[string]int {
	t.Helper()
	literal := func(at time.Time) string { return "'" + at.UTC().Format("2006-01-02 15:04:05.999999-07") + "'" }
	after := literal(p.after.CreatedTime) + ", '" + p.after.ID + "', "
	frontier := literal(p.frontier.CreatedTime) + ", '" + p.frontier.ID + "', "
	naming := schema.Naming{Prefix: s.prefix}
	const window = "timestamptz, text, timestamptz, text, timestamptz, text, bigint, bigint, timestamptz, text"
	const rng, filters = "timestamptz, text, timestamptz, text", ", text, text, text, text, text, boolean, bigint"
	until := literal(time.Now()) + ", '', "
	const unborn = "9000000000000000000" // a transaction that nothing has seen yet
	blocks := map[string]int{}
	for name, read := range map[string]struct {
		types, args string
		partitions  int // 100 rows are in one, or at the border of two
	}{
		"ReadAfter":          {"timestamptz, text, timestamptz, bigint", after + literal(time.Now()) + ", 100", 2},
		"EndOfRange":         {rng + ", bigint", after + until + "100", 2},
		"StartOfRange":       {rng + ", bigint", after + until + "100", 2},
		"SelectRecords":      {rng + filters, after + until + "'', 't', '', 'a', '', true, 100", 2},
		"SelectRecordsBack":  {rng + filters, after + until + "'', 't', '', 'a', '', true, 100", 2},
		"ReadWindow, keys":   {window, after + after + frontier + "100, 100, NULL, ''", 4},
		"ReadWindow, counts": {window, after + frontier + frontier + "100, 100, NULL, ''", 4},
		"CountAfter":         {"timestamptz, text, bigint", after + "101", 4},
		"NextEvent":          {"timestamptz, text, timestamptz", after + "'9999-12-31'", 2},
		"ReadWindow, held":   {window, after + frontier + frontier + "100, 100, " + literal(p.frontier.CreatedTime) + ", '" + unborn + "'", 4},
	} {
		statement, _, _ := strings.Cut(name, ",")
		for _, cache := range []string{"force_custom_plan", "force_generic_plan"} {
			plan := explain(t, s.db, cache, "("+read.types+") AS "+sqlstore.Postgres.Text(statement, naming), read.args)
			partitions := 0
			plan.walk(func(n planNode) {
				if s.rows == fewRows || !strings.HasPrefix(n.Relation, s.prefix) || n.Loops == 0 || n.Hit+n.Read == 0 {
					return // a table of no block or two may well be read from end to end
				}
				require.Contains(t, []string{"Index Scan", "Index Only Scan"}, n.Type, n.Relation)
				partitions++
			})
			require.LessOrEqual(t, partitions, read.partitions)
			blocks[name+", "+cache] = plan.Hit + plan.Read
		}
	}
	return blocks
}

// planNode is a node of EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON).
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
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

// explain runs the statement as a prepared one and returns its plan.
func explain(t *testing.T, db *gorm.DB, cache, statement, args string) planNode {
	t.Helper()
	var text string
	require.NoError(t, db.Connection(func(conn *gorm.DB) error {
		for _, s := range []string{"SET plan_cache_mode = " + cache, "PREPARE explained " + statement} {
			if err := conn.Exec(s).Error; err != nil {
				return err
			}
		}
		defer conn.Exec("DEALLOCATE explained")
		return conn.Raw("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained (" + args + ")").Row().Scan(&text)
	}))
	var plans []struct{ Plan planNode }
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan
}
