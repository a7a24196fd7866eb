package matrix

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// manyRows is how many rows a large table has; make stress asks for more.
var manyRows = flag.Int("rows", 300_000, "rows of the large table of TestReadingStaysFast")

const (
	fewRows    = 10_000 // of the table that the large one is compared with
	months     = 100    // partitions of each, the last one is open-ended
	batchLimit = 100    // rows a read asks for
	mostReads  = 2      // how many times as much the large table may cost
)

// scale is a table of the outbox with that many rows, evenly spread over the
// months until now.
type scale struct {
	db     *gorm.DB
	outbox *gormtx.Outbox
	prefix string
	rows   int
	first  time.Time
	step   time.Duration
}

// row is the cursor at the n-th row.
func (s scale) row(n int) persistence.Cursor {
	return persistence.Cursor{CreatedTime: s.first.Add(time.Duration(n) * s.step), ID: fmt.Sprintf("id-%d", n)}
}

// place is where a reader stands.
type place struct {
	name            string
	after, frontier persistence.Cursor
}

func (s scale) places() []place {
	// In the middle of a month, so that what is read there lies in one.
	half := int(s.first.AddDate(0, months/2, 15).Sub(s.first) / s.step)
	return []place{
		{"beginning", persistence.Cursor{}, persistence.Cursor{}},
		{"half-way", s.row(half), s.row(half + batchLimit/2)},
		{"caught up", s.row(s.rows), s.row(s.rows)},
	}
}

// scaler is how a kind of database is filled and measured.
type scaler struct {
	fill func(t *testing.T, s scale)
	// cost returns what each way to read costs: blocks, or calls of the storage
	// engine.
	cost func(t *testing.T, s scale, p place) map[string]int
	// deeper is what the indexes may add that have a level or two more.
	deeper int
	// most is more than any of these may be.
	most int
}

var scalers = map[string]scaler{
	"postgres": {fillPostgres, postgresBlocks, 6, 60},
	"mysql":    {fillMySQL, mysqlHandlerReads, 0, 500},
}

// A read costs the same in a large table as in a small one, wherever the reader
// stands.
func TestReadingStaysFast(t *testing.T) {
	for _, server := range Servers {
		if server.Again || !server.Partitions {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			pool, err := db.DB()
			require.NoError(t, err)
			pool.SetMaxOpenConns(1) // costs are counted by session
			scaler, known := scalers[db.Name()]
			require.True(t, known, "nothing measures %s", db.Name())
			small, large := newScale(t, db, scaler, fewRows), newScale(t, db, scaler, *manyRows)
			for i, p := range large.places() {
				base := scaler.cost(t, small, small.places()[i])
				for read, cost := range scaler.cost(t, large, p) {
					t.Logf("%s, %s: %d with %d rows, %d with %d", p.name, read, base[read], small.rows, cost, large.rows)
					require.NotZero(t, base[read])
					if read == "ReadStatus" { // which counts what there is, up to a bound
						require.Less(t, cost, 3*persistence.MaxStatusCount, p.name)
						continue
					}
					require.LessOrEqual(t, cost, mostReads*base[read]+scaler.deeper, "%s, %s", p.name, read)
					require.Less(t, cost, scaler.most, "%s, %s", p.name, read)
				}
			}
		})
	}
}

func newScale(t *testing.T, db *gorm.DB, scaler scaler, rows int) scale {
	t.Helper()
	now := time.Now().UTC()
	s := scale{db: db, prefix: fmt.Sprintf("r%d_", rows), rows: rows}
	// Half a month is in the last partition that has rows, on whatever day this
	// runs: a planner may read a partition of a few rows from end to end.
	begun := now.AddDate(0, 0, -15)
	s.first = time.Date(begun.Year(), begun.Month()-(months-2), min(begun.Day(), 28), 0, 0, 0, 0, time.UTC)
	s.step = (now.Sub(s.first) / time.Duration(rows)).Truncate(time.Microsecond)
	s.outbox = gormtx.New(db, gormtx.WithTablePrefix(s.prefix))
	require.NoError(t, s.outbox.Migrate(t.Context()))
	scaler.fill(t, s)
	var n int64
	require.NoError(t, db.Table(s.prefix+"outbox").Count(&n).Error)
	require.EqualValues(t, rows, n)
	return s
}
