package model

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestEverySequenceInMemory(t *testing.T) {
	check(t, openMemory, sequences(slices.Concat(choices, aging)))
}

func TestEverySequenceWithEarlyStamps(t *testing.T) {
	check(t, openStamped, sequences(choices))
}

func TestEverySequenceWithStrayEvents(t *testing.T) {
	check(t, openStamped, sequences(slices.Concat(choices, straying, setting)))
}

func check(t *testing.T, open func() backend, sequences *rapid.Generator[[]operation]) {
	rapid.Check(t, func(t *rapid.T) {
		ops, finish := sequences.Draw(t, "sequence"), finishes.Draw(t, "finish")
		rapid.SyncTest(t, func(t *rapid.T) { run(t, open, ops, finish) })
	})
}
