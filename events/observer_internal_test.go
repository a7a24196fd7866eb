package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

// To tell an observer of a delivery allocates nothing, whether there is one or not.
func TestAnObserverCostsNoAllocation(t *testing.T) {
	told := 0
	r := persistence.Record{ID: "e", EventType: "t", AggregateType: "a", AggregateID: "1", CreatedTime: time.Now()}
	dl := &delivery{subscription: subscription{name: "h"}}
	for _, observers := range [][]Observer{nil, {{}, {Delivered: func(DeliveryInfo) { told++ }}}} {
		d := &Dispatcher{name: "d", observers: observers}
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			d.tellOf(ofDelivered, &r, dl, nil)
			tell(d, ofRead, ReadInfo{Dispatcher: d.name, Events: 1})
		}))
	}
	require.Positive(t, told)
}
