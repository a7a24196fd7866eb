package gormtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

// Partition cuts the first partition of the outbox, and of its markers, at each
// of the rising times.
func Partition(ctx context.Context, db *gorm.DB, naming Naming, ends ...time.Time) error {
	for _, table := range []string{"outbox_idempotency", "outbox"} {
		if err := dialects[db.Name()].partition(ctx, db, naming, table, ends); err != nil {
			return err
		}
	}
	return nil
}

const partitionName = "p2006_01_02"

// cutPostgres cuts the first partition of a table.
func cutPostgres(ctx context.Context, db *gorm.DB, naming Naming, table string, ends []time.Time) error {
	parent := naming.quoted(table)
	const bound = "'2006-01-02 15:04:05Z'"
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		var first struct{ Name, To string }
		err := tx.Raw(`
SELECT i.inhrelid::regclass AS name, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \((.*)\)') AS "to"
FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = ?::regclass AND pg_get_expr(c.relpartbound, c.oid) LIKE '%(MINVALUE)%'`, parent).Scan(&first).Error
		if err != nil {
			return err
		}
		statements := []string{"ALTER TABLE " + parent + " DETACH PARTITION " + first.Name}
		from := "MINVALUE"
		for _, end := range ends {
			to := end.UTC().Format(bound)
			statements = append(statements, fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES FROM (%s) TO (%s)",
				naming.quoted(table+"_"+end.Format(partitionName)), parent, from, to))
			from = to
		}
		statements = append(statements, fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)", parent, first.Name, from, first.To))
		for _, statement := range statements {
			if err := tx.Exec(statement).Error; err != nil {
				return err
			}
		}
		return nil
	})
}

// cutMySQL cuts the first partition of a table.
func cutMySQL(ctx context.Context, db *gorm.DB, naming Naming, table string, ends []time.Time) error {
	var first struct{ Name, End string }
	err := db.WithContext(ctx).Raw(`
SELECT partition_name AS name, partition_description AS end FROM information_schema.partitions
WHERE table_schema = DATABASE() AND table_name = ? ORDER BY partition_ordinal_position LIMIT 1`, naming.Table(table)).Scan(&first).Error
	if err != nil {
		return err
	}
	var ranges strings.Builder
	for _, end := range ends {
		fmt.Fprintf(&ranges, "PARTITION %s VALUES LESS THAN (TO_DAYS('%s')), ", end.Format(partitionName), end.UTC().Format(time.DateOnly))
	}
	return db.WithContext(ctx).Exec(fmt.Sprintf("ALTER TABLE %s REORGANIZE PARTITION %s INTO (%sPARTITION %s VALUES LESS THAN (%s))",
		naming.Table(table), first.Name, ranges.String(), first.Name, first.End)).Error
}
