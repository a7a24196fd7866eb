package main

import (
	"context"
	"strconv"
)

// tally compares what the outbox table holds with what the reader saw and what
// the dispatcher's handlers wrote.
func tally(ctx context.Context, config Config, db *database, reader *cursorReader) (Result, error) {
	ctx = context.WithoutCancel(ctx)
	r := Result{Config: config, Twice: reader.twice, Disorder: reader.disorder}
	var rows []struct {
		ID        string
		EventType string
	}
	if err := db.WithContext(ctx).Raw("SELECT id, event_type FROM " + db.table("outbox")).Scan(&rows).Error; err != nil {
		return r, err
	}
	var committed, handled []string
	for _, row := range rows {
		committed = append(committed, row.ID)
		if row.EventType == eventType {
			handled = append(handled, row.ID)
		}
	}
	r.Committed = len(committed)
	if config.Control != twoWindows {
		r.compare(committed, reader.seen)
	}
	if config.Control != "" && config.Control != twoWindows {
		return r, nil
	}

	// Every version of an aggregate is published, so the outbox has to hold as
	// many rows as the versions say.
	var versions int
	if err := db.WithContext(ctx).Raw("SELECT SUM(version) FROM " + db.table("aggregates")).Scan(&versions).Error; err != nil {
		return r, err
	}
	r.Lost += versions - len(committed)

	if config.Open > 0 {
		err := db.WithContext(ctx).Raw(db.expand(`
SELECT COUNT(*) FROM {prefix}outbox
WHERE created_time > (SELECT MIN(created_time) FROM {prefix}outbox WHERE aggregate_id = ?)
  AND created_time < (SELECT MAX(created_time) FROM {prefix}outbox WHERE aggregate_id = ?)
  AND aggregate_id <> ?`), strconv.Itoa(config.Aggregates), strconv.Itoa(config.Aggregates), strconv.Itoa(config.Aggregates)).Scan(&r.Beside).Error
		if err != nil {
			return r, err
		}
	}

	for _, table := range effectTables {
		if err := r.count(ctx, db, table, handled); err != nil {
			return r, err
		}
	}
	return r, nil
}

// count compares what is committed for a handler with its effects.
func (r *Result) count(ctx context.Context, db *database, table string, committed []string) error {
	var effects []struct {
		EventID            string
		Aggregate, Version int
	}
	if err := db.WithContext(ctx).Raw("SELECT event_id, aggregate, version FROM " + db.table(table) + " ORDER BY number").Scan(&effects).Error; err != nil {
		return err
	}
	applied, last := map[string]bool{}, map[int]int{}
	for _, e := range effects {
		if applied[e.EventID] {
			r.Twice++
		}
		applied[e.EventID] = true
		if e.Version <= last[e.Aggregate] {
			r.Disorder++
		}
		last[e.Aggregate] = e.Version
	}
	r.compare(committed, applied)
	return nil
}

// compare counts what is committed and was not delivered, and the reverse.
func (r *Result) compare(committed []string, delivered map[string]bool) {
	r.Phantom += len(delivered)
	for _, id := range committed {
		if delivered[id] {
			r.Phantom--
		} else {
			r.Lost++
		}
	}
}
