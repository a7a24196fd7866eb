package matrix

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/facetest"
	"github.com/onward-go/outbox/internal/gormtest"
	"github.com/onward-go/outbox/internal/pgxtest"
	"github.com/onward-go/outbox/internal/sqltest"
	"github.com/onward-go/outbox/outboxtest"
	"github.com/onward-go/outbox/sqltx/sqlpgx"
	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// variant is a way to run the suite beside the default one.
type variant struct {
	name        string
	face        string // or gormtx
	mode        Mode   // or the driver's default
	noRetention bool
	naming      gormtest.Naming
	connections int
	config      gorm.Config
	beside      bool // another outbox in the same database
}

func variants(s Server) []variant {
	all := []variant{{name: "default"}}
	for _, face := range slices.Sorted(maps.Keys(faces)) {
		if face != gormFace && (s.Pgx || face != pgxFace) {
			all = append(all, variant{name: "default", face: face})
		}
	}
	if s.Again {
		return all
	}
	// Naming and pools are the core's, so the other faces have them from gormtx.
	all = append(all,
		variant{name: "prefix, beside another outbox", naming: gormtest.Naming{Prefix: "Iam_"}, beside: true},
		variant{name: "one connection", connections: 1},
		// Retention does not go through GORM, whose statements these are.
		variant{name: "prepared", config: gorm.Config{PrepareStmt: true}, noRetention: true},
	)
	if s.Schemas {
		all = append(all, variant{name: "schema outside the search path", naming: gormtest.Naming{Schema: "Elsewhere", Prefix: "x_"}})
	}
	for name, mode := range s.Modes {
		all = append(all, variant{name: name, mode: mode, noRetention: !mode.Retention})
	}
	// All but pgxtx, which has a pool of its own.
	if s.Pgx {
		all = append(all,
			variant{name: "one connection", face: pgxFace, connections: 1},
			variant{name: "schema outside the search path", face: pgxFace, naming: gormtest.Naming{Schema: "Elsewhere", Prefix: "x_"}, noRetention: true},
		)
		for name, mode := range s.Modes {
			all = append(all, variant{name: name, face: pgxFace, mode: mode, noRetention: !mode.Retention})
		}
	}
	for name, mode := range s.Drivers {
		all = append(all, variant{name: name, face: "sqltx", mode: mode, noRetention: !mode.Retention})
	}
	return all
}

const (
	gormFace = "gormtx"
	pgxFace  = "pgxtx"
)

// faces are the ways to the outbox of a database, over the pool that GORM has
// been given.
var faces = map[string]func(testing.TB, *gorm.DB, gormtest.Naming) facetest.Face{
	gormFace: gormtest.Face,
	"sqltx": func(t testing.TB, db *gorm.DB, naming gormtest.Naming) facetest.Face {
		pool, err := db.DB()
		require.NoError(t, err)
		return sqltest.Face(pool, db.Name(), facetest.Naming(naming), sqlpgx.Pipelined())
	},
	// Over a pool of its own, which connects as that one does.
	pgxFace: func(t testing.TB, db *gorm.DB, naming gormtest.Naming) facetest.Face {
		pool, err := db.DB()
		require.NoError(t, err)
		return pgxtest.Face(PgxPool(t, pool), pool, facetest.Naming(naming))
	},
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, server := range Servers {
		for _, v := range variants(server) {
			face := cmp.Or(v.face, gormFace)
			t.Run(server.Name+"/"+face+"/"+v.name, func(t *testing.T) {
				t.Parallel()
				reused := newDatabases(t, server, v)
				outboxtest.Run(t, func(t testing.TB) outboxtest.Backend {
					backend := faces[face](t, reused.take(t), v.naming).Backend(t)
					if v.noRetention {
						backend.Retention = nil
					}
					return backend
				})
			})
		}
	}
}

// connect opens a pool of its own, which closes when the test ends.
func (v variant) connect(t testing.TB, server Server, dsn string) *gorm.DB {
	t.Helper()
	dialector := server.Open(dsn)
	if v.mode.Open != nil {
		dialector = v.mode.Open(t, dsn)
	}
	config := v.config
	config.Logger = logger.Discard
	db := Open(t, dialector, &config)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	sqlDB.SetMaxOpenConns(v.connections)
	return db
}

// prepare makes in a new database what the suite needs.
func (v variant) prepare(t testing.TB, db *gorm.DB) {
	t.Helper()
	if v.beside {
		fillOutbox(t, db, gormtest.Naming{Prefix: "busy_"})
	}
	gormtest.Prepare(t, db, v.naming)
}

// fillOutbox makes an outbox with events, a dedup key, a cursor, markers and
// dead letters, none of which may show in another one.
func fillOutbox(t testing.TB, db *gorm.DB, naming gormtest.Naming) {
	t.Helper()
	outbox := gormtx.New(db, naming.Options()...)
	require.NoError(t, outbox.Migrate(t.Context()))
	evts := newEvents(3)
	evts[0].DedupKey = "key"
	require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
		return events.NewPublisher(outbox).Publish(ctx, evts...)
	}))
	d := events.NewDispatcher(outbox, outbox, outbox, outbox, events.WithMaxAttempts(1))
	require.NoError(t, d.Subscribe("t", "h", func(context.Context, events.Event) error { return errors.New("broken") }))
	for err := error(nil); !errors.Is(err, events.ErrDeadLettered); { // the safe mark may follow in steps
		require.NoError(t, err)
		_, err = d.RunOnce(t.Context(), 2)
	}
}
