package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/onward-go/outbox/persistence"
)

// twoWindows is the control of the dispatcher's reading: late rows in one
// statement, new ones in another. Each aggregate's earlier event may be missed by
// the first and its later one be seen by the second, so it is out of order.
const twoWindows = "twowindows"

type twoStatements struct{ persistence.OutboxStore }

func (s twoStatements) ReadWindow(ctx context.Context, read persistence.WindowRead) (persistence.WindowPage, error) {
	edge := read.Edge()
	late := read
	late.Limit = 0
	found, err := s.OutboxStore.ReadWindow(ctx, late)
	if err != nil {
		return found, err
	}
	time.Sleep(10 * time.Millisecond) // as a busy machine may
	read.After, read.Frontier, read.Counted, read.Count, read.KnownCount = edge, edge, edge, 0, 0
	read.Holdouts, read.CountHeld = persistence.Holdouts{}, 0
	fresh, err := s.OutboxStore.ReadWindow(ctx, read)
	fresh.Records = append(found.Records, fresh.Records...)
	return fresh, err
}

// restarts is how long a dispatcher polls until it forgets what it has read.
const restarts = 2 * time.Second

// dispatch lets one dispatcher after the other poll until all is committed, and
// then drains the outbox. It returns how many events their audits have found: a
// cursor that passes events is not to be excused by what finds them again.
func dispatch(ctx context.Context, db *database, store persistence.OutboxStore, done *atomic.Bool) (late int, err error) {
	for !done.Load() && ctx.Err() == nil {
		d, err := newDispatcher(db, store)
		if err != nil {
			return late, err
		}
		polling, cancel := context.WithTimeout(ctx, restarts)
		failed := make(chan error, 1)
		err = d.Poll(polling, 5*time.Millisecond, 500, func(err error) {
			select {
			case failed <- err:
			default:
			}
			cancel()
		})
		cancel()
		late += int(d.Stats().LateEvents)
		select {
		case err := <-failed:
			return late, err
		default:
		}
		if err != nil {
			return late, err
		}
	}
	d, err := newDispatcher(db, store)
	if err != nil {
		return late, err
	}
	err = untilDrained(done, func() (int, error) { return d.RunOnce(ctx, 500) })
	return late + int(d.Stats().LateEvents), err
}
