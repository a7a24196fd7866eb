package model

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
)

// errElsewhere says that a replica does not have the handler of a letter.
var errElsewhere = errors.New("the handler is elsewhere")

// letter returns a dead letter of those that can be moved, or nil.
func (m *machine) letter(i int) *persistence.DeadLetter {
	all, err := m.DeadLetters.ListDeadLetters(m.ctx, persistence.DeadLetterQuery{Limit: 10_000})
	if err != nil {
		m.t.Fatalf("dead letters: %v", err)
	}
	var found []persistence.DeadLetter
	for _, l := range all {
		if l.State == persistence.DeadLetterDead || l.State == persistence.DeadLetterRequeued {
			found = append(found, l)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &found[i%len(found)]
}

// move has an operator requeue a dead letter, or discard it.
type move struct {
	letter  int
	discard bool
}

func (o move) do(m *machine) {
	l := m.letter(o.letter)
	if l == nil || m.replaying(*l) {
		return
	}
	operator := events.NewDeadLetters(m.DeadLetters, m.Transactor)
	move := operator.Requeue
	if o.discard {
		move = operator.Discard
	}
	if err := move(m.ctx, l.Marker()); err != nil && !errors.Is(err, events.ErrLetterState) {
		m.t.Fatalf("move: %v", err)
	}
}

// replaying reports whether a replica may be in the replay of a letter, which it
// has locked: an operator would have to wait.
func (m *machine) replaying(l persistence.DeadLetter) bool {
	for _, r := range m.replicas {
		begins, runs := l.State == persistence.DeadLetterRequeued, strings.Contains(l.LastError, "still runs")
		if r.busy && !r.crashed() && (begins || runs || r.replays == l.Marker()) {
			return true
		}
	}
	return false
}

// replay has a replica replay a letter.
type replay struct{ idle, letter, calls, seed int }

func (o replay) do(m *machine) {
	l, r := m.letter(o.letter), m.idle(o.idle)
	if l == nil || r == nil {
		return
	}
	keeps := r.keeps // a replay needs no lease, and gives none back
	r.start(false, func(ctx context.Context) error {
		err := r.d.Replay(ctx, l.Marker())
		m.log("   %s: the replay ends: %v", r, err)
		if errors.Is(err, persistence.ErrInvalid) && l.Handler != "A" && !r.config.upgraded {
			err = fmt.Errorf("%w: %w", errElsewhere, err)
		}
		return err
	})
	r.keeps, r.replays = keeps, l.Marker()
	m.advance(r, o.calls, o.seed)
}
