package facetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Partition cuts the first partition of the outbox, and of its markers, at each
// of the rising times.
func Partition(ctx context.Context, db *sql.DB, dialect string, naming Naming, ends ...time.Time) error {
	for _, table := range []string{"outbox_idempotency", "outbox"} {
		if err := dialects[dialect].partition(ctx, db, naming, table, ends); err != nil {
			return err
		}
	}
	return nil
}

const partitionName = "p2006_01_02"

// cutPostgres cuts the first partition of a table.
func cutPostgres(ctx context.Context, db *sql.DB, naming Naming, table string, ends []time.Time) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := cutPostgresIn(ctx, tx, naming, table, ends); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func cutPostgresIn(ctx context.Context, tx *sql.Tx, naming Naming, table string, ends []time.Time) error {
	parent := naming.Quoted(table)
	const bound = "'2006-01-02 15:04:05Z'"
	var first, last string
	err := tx.QueryRowContext(ctx, `
SELECT i.inhrelid::regclass::text, substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \((.*)\)')
FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = $1::text::regclass AND pg_get_expr(c.relpartbound, c.oid) LIKE '%(MINVALUE)%'`, parent).Scan(&first, &last)
	if err != nil {
		return err
	}
	statements := []string{"ALTER TABLE " + parent + " DETACH PARTITION " + first}
	from := "MINVALUE"
	for _, end := range ends {
		to := end.UTC().Format(bound)
		statements = append(statements, fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES FROM (%s) TO (%s)",
			naming.Quoted(table+"_"+end.Format(partitionName)), parent, from, to))
		from = to
	}
	statements = append(statements, fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%s) TO (%s)", parent, first, from, last))
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// cutMySQL cuts the first partition of a table.
func cutMySQL(ctx context.Context, db *sql.DB, naming Naming, table string, ends []time.Time) error {
	var first, last string
	err := db.QueryRowContext(ctx, `
SELECT partition_name, partition_description FROM information_schema.partitions
WHERE table_schema = DATABASE() AND table_name = ? ORDER BY partition_ordinal_position LIMIT 1`, naming.Table(table)).Scan(&first, &last)
	if err != nil {
		return err
	}
	var ranges strings.Builder
	for _, end := range ends {
		fmt.Fprintf(&ranges, "PARTITION %s VALUES LESS THAN (TO_DAYS('%s')), ", end.Format(partitionName), end.UTC().Format(time.DateOnly))
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("ALTER TABLE %s REORGANIZE PARTITION %s INTO (%sPARTITION %s VALUES LESS THAN (%s))",
		naming.Table(table), first, ranges.String(), first, last))
	return err
}
