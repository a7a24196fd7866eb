package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/onward-go/outbox/events"
)

// rowsByHand is a batch as a handler can be at best that updates row by row: with no
// library, no markers, and nothing to read.
func (b *benchmark) rowsByHand() operation {
	return func(ctx context.Context) (int, error) {
		counters := make([]int, batchOfRows)
		for i := range counters {
			counters[i] = anyCounter()
		}
		slices.Sort(counters) // so that two batches do not deadlock
		updates := make([]statement, batchOfRows)
		for i, counter := range counters {
			updates[i] = b.update(counter)
		}
		return batchOfRows, b.hand.transaction(ctx, updates...)
	}
}

// setsByHand is a batch at best whose handler works in sets: the markers in one
// statement and the changes in another. No two batches meet at a counter.
func (b *benchmark) setsByHand() operation {
	const parts = 16
	free := make(chan int, parts)
	for part := range parts {
		free <- part
	}
	return func(ctx context.Context) (int, error) {
		part := <-free
		defer func() { free <- part }()
		ids := make([]string, batchOfSets)
		totals := map[int]int{}
		for i := range ids {
			ids[i] = events.NewID()
			totals[anyCounter()%(counters/parts)*parts+part]++
		}
		changes := make([]change, 0, len(totals))
		for _, counter := range slices.Sorted(maps.Keys(totals)) {
			changes = append(changes, change{ID: strconv.Itoa(counter), N: totals[counter]})
		}
		marks, err := json.Marshal(ids)
		updates, err2 := json.Marshal(changes)
		if err := errors.Join(err, err2); err != nil {
			return 0, err
		}
		return batchOfSets, b.hand.transaction(ctx, statement{b.expand(b.family.markAll), []any{string(marks)}},
			statement{b.expand(b.family.updateAll), []any{string(updates)}})
	}
}

// batchOfSets is how many events a batch has whose handler works in sets.
const batchOfSets = 1000

// batchOfRows is how many events a batch has whose handler updates row by row.
const batchOfRows = 500
