package sqlstore

import (
	"context"
	"fmt"
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
// in memory only: beside a producer that is older than the process there is no mark.
type fence struct {
	mu     sync.Mutex
	freeAt [ring]time.Time
}

func newFence() markReader {
	f := &fence{}
	return f.read
}

// slotWidth is how long the clock stands for one row.
const slotWidth = 50 * time.Millisecond

// read tells the mark. The first time the row of now has not been seen free, since
// it is left out: it is looked at again when the clock has moved on. A row that a
// producer holds is waited for by the caller, who may have something better to do.
func (f *fence) read(ctx context.Context, conn Conn, s *statements) (mark, error) {
	for {
		m, unseen, err := f.look(ctx, conn, s)
		if err != nil || !unseen {
			return m, err
		}
		if err := pause(ctx, slotWidth); err != nil {
			return mark{}, err
		}
	}
}

// look reads the fence. It reports whether there is no mark yet for no other reason
// than that the row of now has been left out whenever it was looked at.
func (f *fence) look(ctx context.Context, conn Conn, s *statements) (m mark, unseen bool, err error) {
	var current int
	// The time first: what is free after it was free at it, or is younger.
	err = conn.Query(ctx, s.SampleClock, nil, func(scan func(...any) error) error {
		return scan(timestamp{&m.Now}, &current, &m.server)
	})
	if err != nil || m.server == 0 {
		return m, false, err
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
		return mark{}, false, err
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
			if at.IsZero() {
				m.Missing = fmt.Sprintf("row %d of the fence has not been free since this process began to look: a producer holds it that has been open for longer", slot)
			}
		}
		unseen = unseen || at.IsZero() && slot == current
	}
	return m, unseen && m.Missing == "", nil
}
