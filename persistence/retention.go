package persistence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// OutboxRetention keeps the outbox from growing for ever. It drops whole
// partitions of the outbox and of the markers, which takes the same time
// whatever they hold; backends without partitions forget rows.
//
// Its methods issue DDL: they return [ErrInTransaction] when ctx carries a
// transaction. They are safe to run from several replicas at once, and to run
// again after a crash at any point. They may return an error together with a
// report of what was done before it:
//
//   - [ErrOwed]: an event that is not settled holds a partition back.
//   - [ErrLockTimeout]: another session has kept a table locked for too long.
//     Nothing is broken; run it again.
type OutboxRetention interface {
	// EnsurePartitions makes sure that this month, by the database's clock,
	// and the given number of months after it, 0 to 120, have partitions of
	// their own, so that publishers never depend on the open-ended last one. Events that
	// have gone there already are closed in at the end of a month.
	EnsurePartitions(ctx context.Context, months int, options RetentionOptions) (RetentionReport, error)

	// DropPartitionsBefore drops the partitions that end at or before the
	// time, and have ended for [AuditWindow]. One that overlaps it stays.
	// Markers are dropped with their events.
	//
	//   - An event that some dispatcher has not settled is never dropped; the
	//     error is [ErrOwed] and names the dispatcher that holds the partition
	//     back. [CursorAdmin] can forget a dispatcher that is no more.
	//   - Without any dispatcher nothing is dropped, unless the options say
	//     that the outbox has no consumers.
	DropPartitionsBefore(ctx context.Context, before time.Time, options RetentionOptions) (RetentionReport, error)
}

const (
	// AuditWindow is how far behind the end of the outbox a dispatcher may
	// look for rows that arrived late. Nothing younger is dropped.
	AuditWindow = 24 * time.Hour
	// MonthsAhead is the number of months for which [Retain] makes
	// partitions in advance.
	MonthsAhead = 3
	// DefaultLockTimeout is how long retention makes others wait at most,
	// unless its options say something else.
	DefaultLockTimeout = 2 * time.Second
)

// RetentionOptions are the options of one retention run. The zero value is the
// safe one.
type RetentionOptions struct {
	// NoConsumers says that nobody reads this outbox through a dispatcher, so
	// that events may be dropped though no cursor has passed them.
	NoConsumers bool
	// DryRun reports what would be done and does nothing.
	DryRun bool
	// LockTimeout is how long publishers and readers may have to wait for one
	// statement of retention. It tries several times. Zero means
	// [DefaultLockTimeout].
	LockTimeout time.Duration
	// KeepKeys is how long [Retain] keeps dedup keys after they were reserved.
	// Zero means [DefaultKeepKeys].
	KeepKeys time.Duration
}

// longestLockTimeout bounds for how long everybody may have to wait behind retention.
const longestLockTimeout = 24 * time.Hour

// Check returns an [ErrInvalid] error for options that make no sense.
func (o RetentionOptions) Check() error {
	if o.LockTimeout != 0 && (o.LockTimeout < time.Millisecond || o.LockTimeout > longestLockTimeout) {
		return fmt.Errorf("%w: the lock timeout is %s, it must be at least 1ms and at most %s, or 0 for %s", ErrInvalid, o.LockTimeout, longestLockTimeout, DefaultLockTimeout)
	}
	if o.KeepKeys < 0 {
		return fmt.Errorf("%w: dedup keys are kept for %s, it must be greater than 0, or 0 for %s", ErrInvalid, o.KeepKeys, DefaultKeepKeys)
	}
	return nil
}

// RetentionReport is what a retention run did, or would do.
type RetentionReport struct {
	// Now is the database's clock when the run began.
	Now time.Time
	// Created and Dropped are in the order in which it was done.
	Created []Partition
	Dropped []Partition
	// PurgedKeys is how many dedup keys were freed. A dry run does not count
	// them.
	PurgedKeys int
}

// Partition is a part of a table that holds the rows stamped from From,
// inclusive, to To, exclusive. A zero time is no bound.
type Partition struct {
	// Table is the outbox, or the table of markers.
	Table string
	// Name is the partition's, or "" on backends that forget rows.
	Name     string
	From, To time.Time
}

// Retain is one run of retention: it makes partitions for this month and the
// next [MonthsAhead], then drops those that ended longer than keep ago, by the
// database's clock. Call it from a scheduler of your own, daily or so; the
// library runs none. Where the backend is a [DedupStore], it frees the dedup keys
// that are old enough, too, a thousand at a time.
//
// It returns [ErrInvalid] if keep is negative, and otherwise what the methods
// of [OutboxRetention] return. Where it cannot make partitions it drops what is
// due all the same, and returns the error; so with what is owed and the keys.
func Retain(ctx context.Context, retention OutboxRetention, keep time.Duration, options RetentionOptions) (RetentionReport, error) {
	if keep < 0 {
		return RetentionReport{}, fmt.Errorf("%w: retention keeps %s, it must not be negative", ErrInvalid, keep)
	}
	report, err := retention.EnsurePartitions(ctx, MonthsAhead, options)
	if report.Now.IsZero() {
		return report, err
	}
	dropped, dropErr := retention.DropPartitionsBefore(ctx, report.Now.Add(-keep), options)
	report.Dropped = dropped.Dropped
	var purgeErr error
	if dedup, ok := retention.(DedupStore); ok && !options.DryRun {
		report.PurgedKeys, purgeErr = purgeKeys(ctx, dedup, report.Now.Add(-cmp.Or(options.KeepKeys, DefaultKeepKeys)))
	}
	return report, errors.Join(err, dropErr, purgeErr)
}

// keyBatch bounds what one statement frees, and locks.
const keyBatch = 1000

func purgeKeys(ctx context.Context, dedup DedupStore, before time.Time) (purged int, err error) {
	for n := keyBatch; n == keyBatch && err == nil; purged += n {
		n, err = dedup.PurgeKeys(ctx, before, keyBatch)
	}
	return purged, err
}
