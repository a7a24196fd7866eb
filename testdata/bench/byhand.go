package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/onward-go/outbox/events"
)

// chainByHand is the limit's transaction as it can be at best where each commits with
// the next one's begin: with no library, and nothing to read.
func (b *benchmark) chainByHand() operation {
	return func(ctx context.Context) (int, error) {
		transactions := make([][]statement, chainLength)
		for i := range transactions {
			transactions[i] = []statement{b.mark(events.NewID()), b.update(anyCounter())}
		}
		return chainLength, b.hand.chain(ctx, transactions)
	}
}

// chainLength is short beside a turn.
const chainLength = 20

// share is a part of the counters. Each batch by hand has one for itself, so that no
// two meet at a counter, as no two of a dispatcher do.
type share int

// parts are as many as batches run at once.
const parts = 16

func shares() chan share {
	free := make(chan share, parts)
	for part := range share(parts) {
		free <- part
	}
	return free
}

func (s share) anyCounter() int { return anyCounter()%(counters/parts)*parts + int(s) }

// rowsByHand is a batch as a handler can be at best that updates row by row: with no
// library, no markers, and nothing to read.
func (b *benchmark) rowsByHand() operation {
	free := shares()
	return func(ctx context.Context) (int, error) {
		part := <-free
		defer func() { free <- part }()
		updates := make([]statement, batchOfRows)
		for i := range updates {
			updates[i] = b.update(part.anyCounter())
		}
		return batchOfRows, b.hand.transaction(ctx, updates...)
	}
}

// setsByHand is a batch at best whose handler works in sets: the markers in one
// statement and the changes in another.
func (b *benchmark) setsByHand() operation {
	free := shares()
	return func(ctx context.Context) (int, error) {
		part := <-free
		defer func() { free <- part }()
		ids := make([]string, batchOfSets)
		totals := map[int]int{}
		for i := range ids {
			ids[i] = events.NewID()
			totals[part.anyCounter()]++
		}
		changes := make([]change, 0, len(totals))
		for counter, total := range totals {
			changes = append(changes, change{ID: strconv.Itoa(counter), N: total})
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

// batchOfSets is how many events a batch has whose handler works in sets: so many
// that each of the lanes finds as many in the dispatcher's window.
const batchOfSets = 500

// batchOfRows is how many events a batch has whose handler updates row by row: the
// default, and that of watermill-sql.
const batchOfRows = 100
