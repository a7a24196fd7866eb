package memstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// ReadStatus implements [persistence.StatusReader]. No producer holds the mark,
// and there are no partitions.
func (s *Store) ReadStatus(ctx context.Context, dispatchers ...string) (persistence.Status, error) {
	letters := s.letters.All(persistence.Detach(ctx))
	if err := s.lock(ctx); err != nil {
		return persistence.Status{}, err
	}
	defer s.mu.Unlock()
	if len(dispatchers) == 0 {
		dispatchers = slices.Sorted(maps.Keys(s.sidecars))
	}
	status := persistence.Status{
		OutboxStatus: persistence.OutboxStatus{
			Now: now(), Mark: time.UnixMicro(s.lastStamp + 1).UTC(),
			Producers: []persistence.ProducerStatus{}, Partitions: []persistence.PartitionStatus{},
		},
		Dispatchers: []persistence.DispatcherStatus{},
	}
	var missing error
	for _, name := range dispatchers {
		c, err := s.existing(name)
		if err != nil {
			missing = errors.Join(missing, err)
			continue
		}
		status.Dispatchers = append(status.Dispatchers, s.dispatcherStatus(name, c, status.Now, letters))
	}
	if missing != nil {
		missing = fmt.Errorf("read the status: %w", missing)
	}
	return status, missing
}

func (s *Store) dispatcherStatus(name string, c *sidecar, now time.Time, letters map[persistence.Marker]persistence.DeadLetter) persistence.DispatcherStatus {
	const most = persistence.MaxStatusCount
	failing := c.failing()
	d := persistence.DispatcherStatus{
		Dispatcher: name, Cursor: c.cursor, Lease: c.lease.Status(now),
		Failing: append([]persistence.Attempt{}, failing[:min(len(failing), persistence.MaxStatusItems)]...), FailingCount: persistence.CountTo(len(failing), most),
		DeadLetters: map[persistence.DeadLetterState]persistence.Count{}, Behind: []persistence.SubscriptionState{},
	}
	after := s.search(c.cursor)
	d.After = persistence.CountTo(len(s.rows)-after, most)
	if after < len(s.rows) {
		oldest := s.rows[after].Cursor()
		d.Oldest, d.OldestAge = &oldest, oldest.Age(now)
	}
	for _, l := range letters {
		if n := d.DeadLetters[l.State]; l.Dispatcher == name {
			d.DeadLetters[l.State] = persistence.Count{N: min(n.N+1, most), More: n.N == most}
		}
	}
	for _, sub := range s.listSubscriptions() {
		if sub.Dispatcher == name && sub.Behind != nil {
			d.Behind = append(d.Behind, sub)
		}
	}
	return d
}
