package main

import (
	"context"
)

// tally compares what the outbox table holds with what the reader saw and what
// the dispatcher's handler wrote.
func tally(ctx context.Context, config Config, db *database, reader *cursorReader) (Result, error) {
	ctx = context.WithoutCancel(ctx)
	r := Result{Config: config, Twice: reader.twice, Disorder: reader.disorder}
	var committed []string
	if err := db.WithContext(ctx).Raw("SELECT id FROM " + db.table("outbox")).Scan(&committed).Error; err != nil {
		return r, err
	}
	r.Committed = len(committed)
	r.Phantom = len(reader.seen)
	for _, id := range committed {
		if reader.seen[id] {
			r.Phantom--
		} else {
			r.Lost++
		}
	}
	if config.Control != "" {
		return r, nil
	}
	// Every aggregate's versions are published without a gap, so the outbox
	// itself must hold as many as the versions say.
	count := func(to *int, query string) error {
		var n int
		err := db.WithContext(ctx).Raw(query).Scan(&n).Error
		*to += n
		return err
	}
	for query, to := range map[string]*int{
		"SELECT sum(version) - (SELECT count(*) FROM " + db.table("outbox") + ") FROM " + db.table("aggregates"):                                   &r.Lost,
		"SELECT count(*) FROM " + db.table("outbox") + " o WHERE NOT EXISTS (SELECT 1 FROM " + db.table("effects") + " e WHERE e.event_id = o.id)": &r.Lost,
		"SELECT count(*) - count(DISTINCT event_id) FROM " + db.table("effects"):                                                                   &r.Twice,
		"SELECT count(*) FROM (SELECT version, lag(version) OVER (PARTITION BY aggregate ORDER BY number) AS before FROM " +
			db.table("effects") + ") x WHERE version <= before": &r.Disorder,
		"SELECT count(*) FROM " + db.table("effects") + " e WHERE NOT EXISTS (SELECT 1 FROM " + db.table("outbox") + " o WHERE o.id = e.event_id)": &r.Phantom,
	} {
		if err := count(to, query); err != nil {
			return r, err
		}
	}
	return r, nil
}
