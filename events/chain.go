package events

import (
	"context"

	"github.com/onward-go/outbox/persistence"
)

// newChain returns a chain of handlers' transactions, or nil if the transactor
// has none.
func (t *term) newChain() persistence.Chain {
	if chainer, ok := t.d.tx.(persistence.Chainer); ok {
		return chainer.Chain(t.d.tx)
	}
	return nil
}

// follows reports whether an entry can be tried in a chain: one that has a single
// handler, which has not failed before. After an unclean takeover, the markers of
// those who have lost the lease may be open; who waits for them would keep the lane
// of the transaction before waiting, too. Those entries are careful ones.
func (t *term) follows(e *entry) bool {
	if len(e.pending) != 1 || e.careful || e.suspect || t.stopping() {
		return false
	}
	dl := e.pending[0]
	return dl.batch == nil && !dl.recorded && !dl.exhausted && dl.exited == nil && !t.notDue(dl)
}

// attempt tries the handler of an entry in a chain.
func (t *term) attempt(c persistence.Chain, e *entry, committed func(error)) (held, entered bool, err error) {
	entered, err = t.apply(e.record, e.pending[0], func(ctx context.Context, fn func(context.Context) error) (err error) {
		held, err = c.Atomically(ctx, fn, committed)
		return err
	})
	return held, entered, err
}

// conclude decides what came of an attempt.
func (t *term) conclude(e *entry, entered bool, err error) {
	dl := e.pending[0]
	dl.tried = true
	if t.tried(e.record, dl, entered, err) {
		e.pending = nil
	}
}
