package model

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestEverySequenceInMemory(t *testing.T) {
	checkAll(t, openMemory, choices, aging)
}

func TestEverySequenceWithEarlyStamps(t *testing.T) {
	checkAll(t, openStamped, choices)
}

func TestEverySequenceWithStrayEvents(t *testing.T) {
	checkAll(t, openStamped, choices, straying, setting)
}

func TestEverySequenceOnSQLite(t *testing.T) {
	checkAll(t, openSQLite(t), choices, straying)
}

// checkAll runs random sequences of the choices.
func checkAll(t *testing.T, open func() backend, choices ...[]choice) {
	t.Parallel()
	sequences := sequences(slices.Concat(choices...))
	rapid.Check(t, func(t *rapid.T) {
		ops, finish := sequences.Draw(t, "sequence"), finishes.Draw(t, "finish")
		rapid.SyncTest(t, func(t *rapid.T) { run(t, open, ops, finish) })
	})
}
