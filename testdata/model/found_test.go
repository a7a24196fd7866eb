package model

import (
	"testing"
	"testing/synctest"
	"time"
)

// Sequences that have broken a promise once, as short as rapid has made them.
var found = map[string]struct {
	open     func() backend
	sequence []operation
}{
	"the audit does not spin while the clock is behind the cursor": {openMemory, []operation{
		publish{events: []spec{{}, {}, {}}},
		pass{limit: 2},
		poll{batch: 1},
	}},
	"a keeper gives back a lease that it has taken after somebody else": {openMemory, []operation{
		pass{limit: 1},
		pass{idle: 1, limit: 1, calls: 5}, // the lease is taken, and its state loaded
		pause{lease + time.Second},
		advance{calls: 3},
		pass{limit: 1},
		pause{4 * time.Second},
	}},
	"a late event is left to a replica that has the handler": {openStamped, []operation{
		publish{events: []spec{{}}},
		deploy{idle: 1, config: config{upgraded: true, width: 1}},
		pass{idle: 1, limit: 1},
		step{by: -time.Second},
		publish{events: []spec{{}}},
		pass{limit: 1},
	}},
	"events that are read again after a rewind are not counted twice": {openStamped, []operation{
		publish{events: []spec{{}, {}}},
		pass{limit: 100},
		pause{lease + time.Second},
		publish{events: []spec{{}}},
		pass{limit: 100},
		pause{lease + time.Second},
		rewind{event: 1, before: true},
		pass{limit: 100},
		step{by: -20 * time.Second},
		publish{events: []spec{{}}},
	}},
	"a term that has ended does not try again": {openMemory, []operation{
		publish{events: []spec{{}}},
		spoil{handler: "A", kind: "error", times: 5},
		poll{batch: 1},
		pause{lease + time.Second},
		advance{calls: 4, seed: 4}, // the keeper, then the handler; the poller stands still
		pause{2 * time.Second},
	}},
}

func TestSequencesOnceFound(t *testing.T) {
	for name, f := range found {
		for _, polls := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					run(t, f.open, f.sequence, finish{polls: polls, config: config{width: 1}})
				})
			})
		}
	}
}
