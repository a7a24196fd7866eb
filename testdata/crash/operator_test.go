package crash

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

// sickEvery is how many versions of an aggregate there are for one whose event
// fails for good, until an operator has mended it.
const sickEvery = 7

var errSick = errors.New("nobody has mended it")

// isSick reports whether an event fails.
func isSick(ctx context.Context, evt events.Event, version int) (bool, error) {
	if version%sickEvery != 0 {
		return false, nil
	}
	var mended int
	err := gormtx.Tx(ctx).Raw("SELECT COUNT(*) FROM mended WHERE event_id = ?", evt.ID).Scan(&mended).Error
	return mended == 0, err
}

// operator mends events that have become dead letters, and requeues them, until
// it is stopped.
type operator struct {
	stop     context.CancelFunc
	done     sync.WaitGroup
	requeued atomic.Int64
}

func (d *database) operate(t *testing.T) *operator {
	ctx, stop := context.WithCancel(t.Context())
	o := &operator{stop: stop}
	letters := events.NewDeadLetters(d, d)
	o.done.Go(func() {
		for ctx.Err() == nil {
			// While the server is down there are none.
			dead, _ := letters.List(ctx, persistence.DeadLetterQuery{State: persistence.DeadLetterDead, Limit: 100})
			for _, letter := range dead {
				err := d.Atomically(ctx, func(ctx context.Context) error {
					if err := d.mend(ctx, letter.Record.ID); err != nil {
						return err
					}
					return letters.Requeue(ctx, letter.Marker())
				})
				if err == nil {
					o.requeued.Add(1)
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	t.Cleanup(o.end)
	return o
}

// mend notes that an event is mended. A replay that was cut off is requeued
// again, so it may have been before.
func (d *database) mend(ctx context.Context, id string) error {
	tx := gormtx.Tx(ctx)
	var mended int
	if err := tx.Raw("SELECT COUNT(*) FROM mended WHERE event_id = ?", id).Scan(&mended).Error; err != nil || mended > 0 {
		return err
	}
	return tx.Exec("INSERT INTO mended (event_id) VALUES (?)", id).Error
}

func (o *operator) end() {
	o.stop()
	o.done.Wait()
}
