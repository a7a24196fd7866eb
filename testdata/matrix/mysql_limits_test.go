package matrix

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/sqlstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
	"github.com/onward-go/outbox/testdata/servers"
)

// A payload that a packet cannot hold is an error, after which either the
// transaction goes on or nothing of it is committed.
func TestMySQLPayloadAboveThePacketLimitIsAnError(t *testing.T) {
	t.Parallel()
	for _, kind := range []*servers.Kind{servers.MySQL, servers.MariaDB} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			dsn := servers.CreateDatabase(t, servers.Private(t, kind))
			admin := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
			require.NoError(t, admin.Exec("CREATE TABLE changes (id INT) ENGINE=InnoDB").Error)
			require.NoError(t, gormtx.Migrate(t.Context(), admin))
			require.NoError(t, admin.Exec("SET GLOBAL max_allowed_packet = 1048576").Error) // for new sessions
			for _, mode := range []string{"", "?interpolateParams=true", "?maxAllowedPacket=1000000&interpolateParams=true", "?maxAllowedPacket=0"} {
				for n := range 2 {
					require.NoError(t, admin.Exec("DELETE FROM outbox").Error)
					require.NoError(t, admin.Exec("DELETE FROM changes").Error)
					db := Open(t, mysql.Open(dsn+mode), &gorm.Config{Logger: logger.Discard})
					outbox := gormtx.New(db)
					publisher := events.NewPublisher(outbox)
					large := newEvents(n + 1)
					large[0].Payload = make([]byte, 2<<20)
					var after error
					err := outbox.Atomically(t.Context(), func(ctx context.Context) error {
						require.NoError(t, gormtx.Tx(ctx).Exec("INSERT INTO changes VALUES (1)").Error)
						failed := publisher.Publish(ctx, large...)
						require.Error(t, failed)
						t.Logf("%s: %v", mode, failed)
						after = publisher.Publish(ctx, newEvents(1)...)
						return nil // the error is swallowed
					})
					want := 0
					if after == nil {
						require.NoError(t, err)
						want = 1
					} else {
						require.ErrorIs(t, after, persistence.ErrNoTransaction)
						require.Error(t, err)
					}
					requireRows(t, admin, "outbox", want)
					requireRows(t, admin, "changes", want)
				}
			}
		})
	}
}

// The session's clock may jump between the beginning of a statement and its
// stamp, when daylight saving time begins or ends. The stamp does not.
func TestMySQLStampIsUTCWhateverTheSessionsClockDoes(t *testing.T) {
	t.Parallel()
	statement := sqlstore.MySQL.Text("AppendRecord", schema.Naming{})
	stamp := regexp.MustCompile(`UTC_TIMESTAMP\(6\) \+ INTERVAL .* MICROSECOND`).FindString(statement)
	require.NotEmpty(t, stamp)
	onMySQL(t, func(t *testing.T, dsn string) {
		db := Open(t, mysql.Open(dsn), &gorm.Config{Logger: logger.Discard})
		var database string
		require.NoError(t, db.Raw("SELECT DATABASE()").Row().Scan(&database))
		measure := func(zone string, pause float64) (local, taken float64) {
			require.NoError(t, db.Connection(func(conn *gorm.DB) error {
				defer conn.Exec("SET time_zone = DEFAULT")
				if err := conn.Exec("SET time_zone = ?", zone).Error; err != nil {
					return err
				}
				var slept int
				return conn.Raw(fmt.Sprintf("SELECT SLEEP(%g), TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) / 1e6, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), %s) / 1e6", pause, stamp)).
					Row().Scan(&slept, &local, &taken)
			}))
			return local, taken
		}
		for _, zone := range []string{"SYSTEM", "+00:00", "-12:00", "+13:00", "+05:45"} {
			local, taken := measure(zone, 0.01)
			require.InDelta(t, local, taken, 0.1, zone)
			require.GreaterOrEqual(t, taken, 0.01, zone)
		}
		// Zones that change in two seconds, made for the purpose.
		for name, jump := range map[string]int{"forward": 3600, "back": -3600, "half": 1800, "half back": -1800, "quarter": 15 * 60} {
			zone := database + " " + name // a new one, since the server remembers them
			var id int
			require.NoError(t, db.Connection(func(conn *gorm.DB) error {
				require.NoError(t, conn.Exec("INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N')").Error)
				return conn.Raw("SELECT LAST_INSERT_ID()").Row().Scan(&id)
			}))
			require.NoError(t, db.Exec("INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES (?, ?)", zone, id).Error)
			require.NoError(t, db.Exec("INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST) VALUES (?, 0, 7200, 0), (?, 1, ?, 1)", id, id, 7200+jump).Error)
			require.NoError(t, db.Exec("INSERT INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id) VALUES (?, 0, 0), (?, FLOOR(UNIX_TIMESTAMP()) + 2, 1)", id, id).Error)
			local, taken := measure(zone, 2.2)
			require.InDelta(t, float64(jump)+2.2, local, 1, "the clock has jumped")
			require.InDelta(t, 2.2, taken, 1, zone)
			for _, table := range []string{"time_zone_transition", "time_zone_transition_type", "time_zone_name", "time_zone"} {
				require.NoError(t, db.Exec("DELETE FROM mysql."+table+" WHERE Time_zone_id = ?", id).Error)
			}
		}
	})
}
