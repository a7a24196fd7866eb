package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// To tell of a delivery allocates nothing where nobody is to be told.
func TestNoObserverCostsNothing(t *testing.T) {
	r := persistence.Record{ID: "e", EventType: "t", AggregateType: "a", AggregateID: "1", CreatedTime: time.Now()}
	dl := &delivery{subscription: subscription{name: "h"}}
	for _, opts := range [][]Option{nil, {WithObserver(Observer{}), WithObserver(Observer{Lease: func(LeaseInfo) {}})}} {
		d := NewDispatcher(nil, nil, nil, nil, opts...)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			d.tellOf(ofDelivered, &r, dl, nil)
			tell(d, ofRead, ReadInfo{Dispatcher: d.name, Events: 1})
		}))
	}
}
