package matrix

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/internal/gormtest"
	"github.com/onward-go/outbox/persistence"
)

// An event with a stamp that is no event's, up to the one that no driver reads, is named.
func TestAValidationNamesAnEventAheadOfTheClock(t *testing.T) {
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			v, err := outbox.Validate(t.Context())
			require.NotContains(t, problems(t, v, err), "ahead of the database's clock")

			insert := gormtest.Backend(t, db, gormtest.Naming{}).Insert
			require.NoError(t, insert(t.Context(), persistence.Record{
				ID: "ahead", AggregateType: "x", AggregateID: "1", EventType: "t", Payload: []byte("{}"),
				CreatedTime: time.Now().UTC().AddDate(9, 0, 0).Truncate(time.Second),
			}))
			v, err = outbox.Validate(t.Context())
			require.Contains(t, problems(t, v, err), `event "ahead" is stamped 20`)
			v, err = outbox.Validate(t.Context(), persistence.RoleProducer)
			require.NotContains(t, problems(t, v, err), "ahead", "it is of no concern for a producer")

			if server.Pgx {
				require.NoError(t, db.Exec("INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, created_time) VALUES ('endless', 'x', '1', 't', 'infinity')").Error)
				v, err = outbox.Validate(t.Context())
				require.Contains(t, problems(t, v, err), `event "endless" is stamped infinity`)
			}
		})
	}
}
