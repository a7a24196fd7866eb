package main

import (
	"context"
	"fmt"
	"time"

	"github.com/onward-go/outbox/internal/gormtest"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/servers"
)

// smallRows is the number of events in the partition that the large one is
// compared with.
const smallRows = 10_000

// compareDrops prints how long it takes to drop one of a hundred partitions.
func compareDrops(ctx context.Context, f family, server *servers.Server, rows int) error {
	small, err := timeDrop(ctx, f, server.DSN, smallRows)
	if err != nil {
		return fmt.Errorf("%s: drop %d rows: %w", server.Name, smallRows, err)
	}
	large, err := timeDrop(ctx, f, server.DSN, rows)
	if err != nil {
		return fmt.Errorf("%s: drop %d rows: %w", server.Name, rows, err)
	}
	fmt.Printf("bench retention drop %s rows=%d ms=%d\n", server.Name, smallRows, small.Milliseconds())
	fmt.Printf("bench retention drop %s rows=%d ms=%d ratio=%.2f\n", server.Name, rows, large.Milliseconds(), float64(large)/float64(small))
	return nil
}

// timeDrop fills the oldest of a hundred partitions and drops it.
func timeDrop(ctx context.Context, f family, dsn string, rows int) (time.Duration, error) {
	b, err := open(ctx, f, dsn, 1)
	if err != nil {
		return 0, err
	}
	defer b.close()
	now := time.Now().UTC()
	var ends []time.Time
	for month := -99; month <= 0; month++ {
		ends = append(ends, time.Date(now.Year(), now.Month()+time.Month(month), 1, 0, 0, 0, 0, time.UTC))
	}
	if err := gormtest.Partition(ctx, b.db, gormtest.Naming{Prefix: b.prefix}, ends...); err != nil {
		return 0, err
	}
	if err := b.fillBefore(ctx, ends[0], rows, ""); err != nil {
		return 0, err
	}
	if _, err := b.outbox.SafeMark(ctx); err != nil {
		return 0, err
	}
	time.Sleep(5 * time.Second) // MySQL's fence comes round, and the server writes what we filled
	if _, err := b.outbox.SafeMark(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	report, err := b.outbox.DropPartitionsBefore(ctx, ends[0], persistence.RetentionOptions{NoConsumers: true})
	took := time.Since(start)
	if err == nil && len(report.Dropped) != 2 {
		err = fmt.Errorf("%d partitions were dropped, not that of the events and that of the markers", len(report.Dropped))
	}
	return took, err
}

// fillBefore makes events of the past, each of an aggregate of its own, on the
// server: each statement as many as there are.
func (b *benchmark) fillBefore(ctx context.Context, end time.Time, rows int, payload string) error {
	at := end.Add(-time.Hour).Format("2006-01-02 15:04:05")
	err := b.db.WithContext(ctx).Exec(b.expand("INSERT INTO {prefix}outbox (id, aggregate_type, aggregate_id, event_type, payload, created_time) VALUES ('x', 'a', 'x', ?, ?, ?)"),
		event.Type, []byte(payload), at).Error
	for n, round := 1, 0; err == nil && n < rows; n, round = min(2*n, rows), round+1 {
		id := fmt.Sprintf("CONCAT(id, '%c')", 'a'+round)
		err = b.db.WithContext(ctx).Exec(b.expand(fmt.Sprintf(
			"INSERT INTO {prefix}outbox (id, aggregate_type, aggregate_id, event_type, payload, created_time) "+
				"SELECT %s, aggregate_type, %s, event_type, payload, "+b.later+" FROM {prefix}outbox LIMIT %d",
			id, id, n, min(n, rows-n)))).Error
	}
	return err
}
