package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// Record implements persistence.IdempotencyStore. It is one statement, unless
// there are several markers and some exist where only an error tells so.
func (s *Store) Record(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	conn, err := s.tx(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range markers {
		if err := persistence.CheckMarker(m); err != nil {
			return nil, err
		}
	}
	recorded := make([]bool, len(markers))
	if len(markers) > 1 {
		known, err := s.recordMany(ctx, conn, markers, recorded)
		if known || err != nil {
			return recorded, s.failed(s.inAnotherLife(ctx, err), "record %d markers, first of event %s, handler %q", len(markers), markers[0].Event, markers[0].Handler)
		}
	}
	for _, i := range inOrder(markers) {
		if recorded[i], err = s.recordOne(ctx, conn, markers[i]); err != nil {
			return nil, s.notRecorded(ctx, err, markers[i])
		}
	}
	return recorded, nil
}

// notRecorded says which marker an error is about.
func (s *Store) notRecorded(ctx context.Context, err error, m persistence.Marker) error {
	if err == nil {
		return nil
	}
	return s.failed(s.inAnotherLife(ctx, err), "record the marker of event %s, handler %q", m.Event, m.Handler)
}

// inOrder returns the indexes of markers in the order in which all write them, so
// that nobody waits for one that waits for it.
func inOrder(markers []persistence.Marker) []int {
	order := make([]int, len(markers))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(markers[a].Event.Compare(markers[b].Event), strings.Compare(markers[a].Handler, markers[b].Handler))
	})
	return order
}

// RecordNew implements persistence.IdempotencyStore.
func (s *Store) RecordNew(ctx context.Context, marker persistence.Marker) error {
	conn, err := s.tx(ctx)
	if err == nil {
		err = persistence.CheckMarker(marker)
	}
	if err != nil {
		return err
	}
	return s.notRecorded(ctx, s.insertMarker(ctx, conn, marker), marker)
}

// insertMarker writes a marker that is expected to be new.
func (s *Store) insertMarker(ctx context.Context, conn Conn, m persistence.Marker) error {
	limit := s.idleLimit(ctx)
	if s.sql.InsertMarker == "" || limit == "" {
		recorded, err := s.recordOne(ctx, conn, m)
		if err == nil && !recorded {
			err = persistence.ErrApplied
		}
		return err
	}
	query := s.sql.InsertMarker
	if s.cfg.AsynchronousCommit {
		query = s.sql.InsertMarkerAsynchronously
	}
	args := append([]any{s.at(m.Event.CreatedTime), m.Event.ID, m.Handler, limit}, postgresLifeTimes(lifeOf(ctx))...)
	_, err := conn.Exec(ctx, query, args...)
	if err != nil && s.cfg.Dialect.isTaken(err) {
		return persistence.ErrApplied
	}
	return err
}

func (s *Store) recordOne(ctx context.Context, conn Conn, m persistence.Marker) (bool, error) {
	alike := markerStatements{s.sql.RecordMarker, s.sql.RecordMarkerDurably, s.sql.RecordMarkerInLife}
	n, err := s.record(ctx, conn, alike, s.at(m.Event.CreatedTime), m.Event.ID, m.Handler)
	if s.isDuplicate(err) {
		return false, nil
	}
	return n == 1, err
}

// recordMany writes markers by one statement. It reports whether it is known now
// which are new; if not, none is written.
func (s *Store) recordMany(ctx context.Context, conn Conn, markers []persistence.Marker, recorded []bool) (known bool, err error) {
	order := inOrder(markers)
	sorted := make([]persistence.Marker, len(markers))
	for i, n := range order {
		sorted[i] = markers[n]
	}
	if s.cfg.Dialect.listsKnown {
		return true, s.recordArrays(ctx, conn, sorted, order, recorded)
	}
	keys, err := encodeMarkers(sorted)
	if err != nil {
		return false, err
	}
	if s.cfg.Dialect.isDuplicate != nil {
		_, err := s.record(ctx, conn, markerStatements{s.sql.RecordMarkers, s.sql.RecordMarkersDurably, s.sql.RecordMarkersInLife}, keys)
		if s.isDuplicate(err) {
			return false, nil
		}
		for i := range recorded {
			recorded[i] = err == nil
		}
		return true, err
	}
	first := map[persistence.Marker]int{}
	for _, n := range slices.Backward(order) { // one that is given twice is new once
		first[markers[n].Key()] = n
	}
	err = conn.Query(ctx, s.sql.RecordMarkers, s.withSettings(ctx, keys), func(scan func(...any) error) error {
		var m persistence.Marker
		err := scan(timestamp{&m.Event.CreatedTime}, &m.Event.ID, &m.Handler)
		if n, ok := first[m.Key()]; ok {
			recorded[n] = true
		}
		return err
	})
	return true, err
}

// recordArrays writes markers, sorted, of which order tells the places in recorded.
func (s *Store) recordArrays(ctx context.Context, conn Conn, sorted []persistence.Marker, order []int, recorded []bool) error {
	times, ids, handlers := encodeArrays(sorted)
	known := map[persistence.Marker]bool{}
	err := conn.Query(ctx, s.sql.RecordMarkers, s.withSettings(ctx, times, ids, handlers), func(scan func(...any) error) error {
		var m persistence.Marker
		err := scan(timestamp{&m.Event.CreatedTime}, &m.Event.ID, &m.Handler)
		known[m.Key()] = true
		return err
	})
	if err != nil {
		return err
	}
	for i, m := range sorted {
		key := m.Key()
		recorded[order[i]] = !known[key]
		known[key] = true // one that is given twice is new once
	}
	return nil
}

// markerStatements record the same, in any life of the server, on a server that loses
// nothing, or in one life.
type markerStatements struct{ anywhere, durably, inLife string }

// record runs one of the statements. To ask for the life costs as much as to write the
// marker, so it is asked for where commits may be lost.
func (s *Store) record(ctx context.Context, conn Conn, alike markerStatements, args ...any) (n int64, err error) {
	life := lifeOf(ctx)
	if life == "" || alike.inLife == "" {
		return conn.Exec(ctx, alike.anywhere, s.withSettings(ctx, args...)...)
	}
	if !s.losesCommits.Load() {
		server, _, _ := strings.Cut(life, "/")
		if n, err = conn.Exec(ctx, alike.durably, append(args, server)...); n > 0 || err != nil {
			return n, err
		}
	}
	if n, err = conn.Exec(ctx, alike.inLife, append(args, life)...); n == 0 && err == nil {
		return 0, errAnotherLife(life)
	}
	if err == nil || s.isDuplicate(err) {
		s.losesCommits.Store(true)
	}
	return n, err
}

// withSettings adds those of the transaction, where the statement takes any.
func (s *Store) withSettings(ctx context.Context, args ...any) []any {
	if !s.cfg.Dialect.setsTransaction {
		return args
	}
	args = append(append(args, s.idleLimit(ctx)), postgresLifeTimes(lifeOf(ctx))...)
	if s.cfg.AsynchronousCommit {
		return append(args, "off")
	}
	return append(args, "")
}

// inAnotherLife makes the lease's loss of the error with which a statement refuses
// markers in another life of the server.
func (s *Store) inAnotherLife(ctx context.Context, err error) error {
	if is, life := s.cfg.Dialect.isAnotherLife, lifeOf(ctx); err != nil && is != nil && life != "" && is(err) {
		return fmt.Errorf("%w: %w", errAnotherLife(life), err)
	}
	return err
}

func (s *Store) isDuplicate(err error) bool {
	duplicate := s.cfg.Dialect.isDuplicate
	return duplicate != nil && duplicate(err)
}

// idleLimit is how long the transaction may stand idle before the server ends
// it, in ms, or "". Whoever is alive has ended it by then: ctx is over. The limit that
// sessions begin with stays where it is lower; one that is SET later is replaced.
func (s *Store) idleLimit(ctx context.Context) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	const longest = 24 * 24 * time.Hour // milliseconds are 32 bits
	limit := min(max(time.Until(deadline), 0), longest) + time.Second
	if session := time.Duration(s.sessionIdleLimit.Load()); session > 0 {
		limit = min(limit, session)
	}
	return strconv.FormatInt(limit.Milliseconds(), 10)
}

// Applied implements persistence.IdempotencyStore.
func (s *Store) Applied(ctx context.Context, markers ...persistence.Marker) ([]bool, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return nil, err
	}
	applied, err := s.applied(ctx, conn, markers)
	return applied, s.failed(err, "read %d markers", len(markers))
}

// applied reports for each of the markers whether conn sees it.
func (s *Store) applied(ctx context.Context, conn Conn, markers []persistence.Marker) ([]bool, error) {
	applied := make([]bool, len(markers))
	before := 0
	for page := range slices.Chunk(markers, mostKeys) {
		keys, err := encodeMarkers(page)
		if err != nil {
			return nil, err
		}
		err = conn.Query(ctx, s.sql.AppliedMarkers, []any{keys}, func(scan func(...any) error) error {
			var number int
			err := scan(&number)
			if err == nil {
				applied[before+number-1] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		before += len(page)
	}
	return applied, nil
}
