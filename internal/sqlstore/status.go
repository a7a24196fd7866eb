package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// ReadStatus implements persistence.StatusReader.
func (s *Store) ReadStatus(ctx context.Context, dispatchers ...string) (persistence.Status, error) {
	conn, err := s.pool(ctx, reading)
	if err != nil {
		return persistence.Status{}, err
	}
	var status persistence.Status
	if status.OutboxStatus, err = s.outboxStatus(ctx, conn); err == nil {
		status.Dispatchers, err = s.dispatcherStatuses(ctx, conn, dispatchers, status.Now)
	}
	if err != nil {
		return persistence.Status{}, s.failed(err, "read the status")
	}
	return status, nil
}

func (s *Store) outboxStatus(ctx context.Context, conn Conn) (persistence.OutboxStatus, error) {
	m, err := s.patientMark(ctx, conn)
	if err != nil {
		return persistence.OutboxStatus{}, err
	}
	status := persistence.OutboxStatus{Now: m.Now, Mark: m.Time, Partitions: []persistence.PartitionStatus{}}
	if status.Producers, err = s.producers(ctx, conn, m); err != nil {
		return status, fmt.Errorf("who holds the safe mark: %w", err)
	}
	if len(status.Producers) > 0 && !m.Time.IsZero() {
		status.MarkAge = persistence.Seconds(max(0, m.Now.Sub(m.Time)))
	}
	if s.cfg.Dialect.partitions == nil {
		return status, nil
	}
	for _, t := range []table{s.outboxTable(), s.markerTable()} {
		p, err := s.partitionStatus(ctx, conn, t, m.Now)
		if errors.Is(err, persistence.ErrSchema) {
			status.Problems = append(status.Problems, fmt.Sprintf("partitions of %s: %v", t.name, err))
			continue
		}
		if err != nil {
			return status, err
		}
		status.Partitions = append(status.Partitions, p)
	}
	return status, nil
}

// statusPatience is how long a status waits for a fence to come round that this
// process has not seen before. Where a producer holds it, it does not.
const statusPatience = 3 * markPause

// patientMark reads the mark. A new process of MySQL knows it when it has seen
// every row of the fence free.
func (s *Store) patientMark(ctx context.Context, conn Conn) (m mark, err error) {
	for deadline := time.Now().Add(statusPatience); ; {
		m, err = s.safeMark(ctx, conn)
		if err != nil || !m.Time.IsZero() || !time.Now().Before(deadline) {
			return m, err
		}
		if err := pause(ctx, markPause); err != nil {
			return m, err
		}
	}
}

// momentary is for how long somebody may hold a row of a fence who is no producer:
// another reader of the mark.
const momentary = time.Second

// producers returns who holds the mark back.
func (s *Store) producers(ctx context.Context, conn Conn, m mark) ([]persistence.ProducerStatus, error) {
	found := []persistence.ProducerStatus{}
	query := s.sql.Producers
	if s.tornViews.Load() { // MariaDB
		query = s.sql.Suspects
	}
	hides := s.cfg.Dialect.hidesHolders
	if query == "" || hides != nil && len(m.held) == 0 {
		return found, nil
	}
	err := conn.Query(ctx, query, []any{persistence.MaxStatusItems}, func(scan func(...any) error) error {
		p := persistence.ProducerStatus{Suspected: query == s.sql.Suspects}
		err := scan(timestamp{&p.Began}, &p.PID, &p.Client, &p.State, &p.Prepared)
		found = append(found, p)
		return err
	})
	if err != nil && hides != nil && hides(err) {
		err = nil
	}
	if len(found) == 0 { // the fence tells no more than that there are some
		for _, free := range m.held {
			if m.Now.Sub(free) > momentary {
				found = append(found, persistence.ProducerStatus{Began: free})
			}
		}
		slices.SortFunc(found, func(a, b persistence.ProducerStatus) int { return a.Began.Compare(b.Began) })
	}
	for i, p := range found {
		if !p.Began.IsZero() {
			found[i].Age = persistence.Seconds(max(0, m.Now.Sub(p.Began)))
		}
	}
	return found, err
}

func (s *Store) partitionStatus(ctx context.Context, conn Conn, t table, now time.Time) (persistence.PartitionStatus, error) {
	status := persistence.PartitionStatus{Table: t.name}
	all, err := s.listPartitions(ctx, conn, t)
	if err != nil {
		return status, err
	}
	for _, p := range all {
		if p.detaching {
			status.Detaching = append(status.Detaching, p.Name)
		} else if p.To.IsZero() {
			status.Through = p.From
			if status.RefusesFrom, err = s.boundOf(ctx, conn, p); err != nil {
				return status, err
			}
		} else if p.To.After(status.Through) {
			status.Through = p.To
		}
	}
	status.Ahead = persistence.Seconds(status.Through.Sub(now))
	return status, nil
}
