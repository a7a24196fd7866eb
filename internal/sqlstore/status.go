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
	status := persistence.Status{Dispatchers: []persistence.DispatcherStatus{}}
	if err := s.outboxStatus(ctx, conn, &status.OutboxStatus); err != nil {
		return persistence.Status{}, s.failed(err, "read the status")
	}
	err = s.dispatcherStatuses(ctx, conn, dispatchers, &status)
	if err != nil && !errors.Is(err, persistence.ErrNotFound) {
		return persistence.Status{}, s.failed(err, "read the status")
	}
	return status, s.failed(err, "read the status")
}

// setAside notes a part of a status that could not be read. It returns an error that is
// no part's: whatever is asked next would fail, too, or nobody waits for it.
func (s *Store) setAside(ctx context.Context, status *persistence.OutboxStatus, part persistence.StatusPart, of string, err error) error {
	d := s.cfg.Dialect
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil, errors.Is(err, persistence.ErrNotPrimary), inChain(err, func(e error) bool { return d.lost(e) || unreachable(e) }):
		return err
	}
	status.Unread = append(status.Unread, persistence.UnreadPart{Part: part, Of: of, Error: d.advised(err).Error()})
	return nil
}

// outboxStatus reads what the dispatchers share.
func (s *Store) outboxStatus(ctx context.Context, conn Conn, status *persistence.OutboxStatus) error {
	status.Producers, status.Partitions = []persistence.ProducerStatus{}, []persistence.PartitionStatus{}
	m, err := s.patientMark(ctx, conn)
	if err := s.setAside(ctx, status, persistence.StatusMark, "", err); err != nil {
		return err
	}
	if err != nil {
		if m.Now, err = s.clock(ctx, conn); err != nil {
			return err
		}
	}
	status.Now, status.Mark = m.Now, m.Time
	// Without the mark, a fence has not told who holds it.
	if status.IsUnread(persistence.StatusMark, "") && s.cfg.Dialect.hidesHolders != nil {
		status.Unread = append(status.Unread, persistence.UnreadPart{Part: persistence.StatusProducers, Error: "they are read with the mark"})
	} else {
		found, err := s.producers(ctx, conn, m)
		if err := s.setAside(ctx, status, persistence.StatusProducers, "", err); err != nil {
			return fmt.Errorf("who holds the safe mark: %w", err)
		}
		if err == nil {
			status.Producers = found
		}
	}
	if len(status.Producers) > 0 && !m.Time.IsZero() {
		status.MarkAge = persistence.Seconds(max(0, m.Now.Sub(m.Time)))
	}
	if s.cfg.Dialect.partitions == nil {
		return nil
	}
	for _, t := range []table{s.outboxTable(), s.markerTable()} {
		p, err := s.partitionStatus(ctx, conn, t, m.Now)
		if err := s.setAside(ctx, status, persistence.StatusPartitions, t.name, err); err != nil {
			return err
		}
		if err == nil {
			status.Partitions = append(status.Partitions, p)
		}
	}
	return nil
}

// clock asks a primary for the time, where the mark, which tells it otherwise, could not
// be read.
func (s *Store) clock(ctx context.Context, conn Conn) (now time.Time, err error) {
	var primary, writable bool
	var back time.Time
	err = conn.Query(ctx, s.sql.ProbeSession, []any{s.at(time.Now())}, func(scan func(...any) error) error {
		return scan(timestamp{&now}, &primary, &writable, timestamp{&back})
	})
	if err == nil && !primary {
		err = fmt.Errorf("%w: a standby answers; connect to the primary", persistence.ErrNotPrimary)
	}
	if err != nil {
		return now, fmt.Errorf("ask for the time: %w", err)
	}
	return now, nil
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
	if i := slices.IndexFunc(all, func(p partition) bool { return !p.detaching }); i >= 0 {
		status.From = all[i].From
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
