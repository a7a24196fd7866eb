package persistence

import (
	"context"
	"time"
)

// OutboxRetention keeps the outbox from growing for ever. It drops whole
// partitions of the outbox and of the markers, which takes the same time
// whatever they hold; backends without partitions forget rows.
//
// Its methods issue DDL: they return [ErrInTransaction] when ctx carries a
// transaction. They are safe to run from several replicas at once, and to run
// again after a crash at any point.
type OutboxRetention interface {
	// EnsurePartitions makes sure that every month up to the one that holds
	// the time has a partition, so that publishers never depend on the
	// open-ended last one.
	EnsurePartitions(ctx context.Context, through time.Time) (RetentionReport, error)

	// DropPartitionsBefore drops the partitions that end at or before the
	// time. One that overlaps it stays.
	//
	//   - An event that some dispatcher has not settled is never dropped; the
	//     error names the dispatcher that holds the partition back.
	//   - Without any dispatcher nothing is dropped, unless the options say
	//     that the outbox has no consumers.
	DropPartitionsBefore(ctx context.Context, before time.Time, options RetentionOptions) (RetentionReport, error)
}

// RetentionOptions are the options of one retention run. The zero value is the
// safe one.
type RetentionOptions struct {
	// NoConsumers says that nobody reads this outbox through a dispatcher.
	NoConsumers bool
	// DryRun reports what would be done and does nothing.
	DryRun bool
}

// RetentionReport is what a retention run did, or would do.
type RetentionReport struct {
	Created []Partition
	Dropped []Partition
}

// Partition is a part of a table that holds the rows stamped from From,
// inclusive, to To, exclusive. A zero time is no bound.
type Partition struct {
	Table    string
	Name     string
	From, To time.Time
}
