package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// A server's life begins when it is started, or has recovered from a crash, and ends
// when it stops. Within a life nothing is lost that has committed. Beyond it there may
// be less than a holder of the lease has seen: a crash takes back what was committed
// asynchronously, and a replica that takes over may lack the last transactions. So a
// lease is of one life, and each fenced statement compares it with the server's, in its
// WHERE. The holder then begins anew from the cursor that is there, and finds out by
// the markers what is to be done again.

// postgresLife is when the server was started, and when it last threw away its
// statistics, which it does at a crash, also at that of a single process, both in
// microseconds. No other server has both.
const postgresLife = `concat((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, '/',
    (extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint)`

// inPostgresLife is the same as a condition on two times, for what runs once an event.
// NULL is any life.
func inPostgresLife(started, reset string) string {
	return `(pg_postmaster_start_time() <> ` + started + `::timestamptz) IS NOT TRUE
    AND (pg_stat_get_bgwriter_stat_reset_time() <> ` + reset + `::timestamptz) IS NOT TRUE`
}

// postgresLifeTimes are the arguments of inPostgresLife for a life. What is none never
// was.
func postgresLifeTimes(life string) []any {
	if life == "" {
		return []any{nil, nil}
	}
	times := []any{time.Time{}, time.Time{}}
	for i, text := range strings.SplitN(life, "/", 2) {
		if micros, err := strconv.ParseInt(text, 10, 64); err == nil {
			times[i] = time.UnixMicro(micros).UTC()
		}
	}
	return times
}

// mysqlServer tells servers apart: those that replicate from each other have different
// numbers.
const mysqlServer = `CONCAT(@@server_id, '@', @@hostname, ':', @@port)`

// mysqlLife is the server, and the second in which it was started. Uptime is counted to
// the statement's begin, like UNIX_TIMESTAMP, so that their difference stays the same,
// whatever the clock does. Where to read it is for each product to say, in the other's
// comment: MariaDB's performance_schema is off by default, and MySQL's
// information_schema lacks it.
const mysqlLife = `CONCAT(@@server_id, '@', @@hostname, ':', @@port, '/', (SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED)
    FROM /*!80000 performance_schema.global_status *//*M!100600 information_schema.GLOBAL_STATUS */ WHERE VARIABLE_NAME = 'Uptime'))`

// mysqlIsDurable is whether the server loses nothing that has committed, as long as it
// is the same server. It costs next to nothing to ask, as a life does not.
const mysqlIsDurable = `@@innodb_flush_log_at_trx_commit NOT IN (0, 2) AND (@@sync_binlog = 1 OR NOT @@log_bin)`

// fence returns the arguments of a fenced statement: the dispatcher, the token, more, the
// owner, and the life, where there is one.
func (s *Store) fence(lease persistence.Lease, more ...any) []any {
	args := append(append([]any{lease.Dispatcher, lease.Token}, more...), lease.Owner)
	if s.cfg.Dialect.tellsLife {
		args = append(args, lease.Incarnation)
	}
	return args
}

// lifeOf returns the life in which the lease was acquired for whose holder a handler
// runs, or "".
func lifeOf(ctx context.Context) string {
	lease, _ := persistence.LeaseOf(ctx)
	return lease.Incarnation
}

// errAnotherLife says that a marker is refused.
func errAnotherLife(life string) error {
	return fmt.Errorf("%w: the server %s has been restarted or replaced, and may have lost what was committed before", persistence.ErrLeaseLost, life)
}
