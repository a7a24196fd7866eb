package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// ring is the number of rows of MySQL's fence. Each stands for 50 ms of the
// clock.
const ring = 64

// fence tells the safe mark of MySQL's ring. A row that was free at some time
// had no producer then, so whoever locks it later stamps later: the mark is the
// lowest of the times at which each row was last seen free. That is remembered
// in memory only; a new process waits for the ring to come round.
type fence struct {
	mu     sync.Mutex
	freeAt [ring]time.Time
}

func newFence() markReader {
	f := &fence{}
	return f.read
}

func (f *fence) read(ctx context.Context, conn Conn, s *statements) (mark, error) {
	var m mark
	var current int
	// The time first: what is free after it was free at it, or is younger.
	err := conn.Query(ctx, s.SampleClock, nil, func(scan func(...any) error) error {
		return scan(timestamp{&m.Now}, &current, &m.server)
	})
	if err != nil || m.server == 0 {
		return m, err
	}
	var free []int
	// The row of now is left out, so that producers never wait for us.
	err = conn.Query(ctx, s.SafeMark, []any{current}, func(scan func(...any) error) error {
		var slot int
		err := scan(&slot)
		free = append(free, slot)
		return err
	})
	if err != nil {
		return mark{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var isFree [ring]bool
	for _, slot := range free {
		isFree[slot] = true
		if m.Now.After(f.freeAt[slot]) {
			f.freeAt[slot] = m.Now
		}
	}
	m.SafeMark = persistence.SafeMark{Time: f.freeAt[0], Now: m.Now}
	for slot, at := range f.freeAt {
		if at.Before(m.Time) {
			m.Time = at
		}
		if !isFree[slot] && slot != current {
			m.held = append(m.held, at)
		}
	}
	return m, nil
}
