package facetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// deadlock makes the transaction of ctx the victim of a deadlock. InnoDB picks
// the one that has changed less.
func deadlock(ctx context.Context, f Face) error {
	if f.oneConnection() { // nobody to meet
		return f.Exec(ctx, "KILL CONNECTION_ID()")
	}
	const touch = "UPDATE outboxtest_lock SET v = v + 1 WHERE k = ?"
	if err := f.Exec(ctx, touch, 1); err != nil {
		return err
	}
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		other, err := f.Pool.BeginTx(ctx, nil)
		if err != nil {
			done <- err
			return
		}
		if err := errors.Join(change(ctx, other, touch)...); err != nil {
			done <- errors.Join(err, other.Rollback())
			return
		}
		ready <- struct{}{}
		_, _ = other.ExecContext(ctx, touch, 1) // waits for the victim
		done <- other.Rollback()
	}()
	select {
	case <-ready:
	case err := <-done:
		return err
	}
	err := f.Exec(ctx, touch, 2)
	<-done
	return err
}

// change changes much, the second lock first.
func change(ctx context.Context, tx *sql.Tx, touch string) []error {
	_, err := tx.ExecContext(ctx, touch, 2)
	errs := []error{err}
	for k := 10; k < 200; k++ {
		_, err := tx.ExecContext(ctx, "INSERT INTO outboxtest_lock VALUES (?, 0)", k)
		errs = append(errs, err)
	}
	return errs
}

// disconnect cuts the connection of the transaction of ctx behind its back.
func disconnect(ctx context.Context, f Face) error {
	if f.oneConnection() {
		return f.Exec(ctx, "KILL CONNECTION_ID()")
	}
	var id int64
	if err := f.Ask(ctx, &id, "SELECT CONNECTION_ID()"); err != nil {
		return err
	}
	_, err := f.Pool.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // it takes no arguments
	return err
}

// gapLocks reports whether InnoDB takes gap locks where MySQL, and not MariaDB,
// leaves one behind: at the place of a row whose insert was rolled back to a
// savepoint.
func gapLocks(db *sql.DB) bool {
	version, err := ask(db, "SELECT VERSION()")
	if err != nil || strings.Contains(version, "MariaDB") {
		return false
	}
	isolation, err := ask(db, "SELECT @@transaction_isolation")
	return err != nil || isolation == "REPEATABLE-READ"
}

// snapshotIsolation reports whether MariaDB refuses to lock a row that has
// changed since the transaction's snapshot. MySQL does not know the variable.
func snapshotIsolation(db *sql.DB) bool {
	isolation, err := ask(db, "SELECT @@tx_isolation")
	if err != nil || isolation != "REPEATABLE-READ" {
		return false
	}
	setting, err := ask(db, "SELECT @@innodb_snapshot_isolation")
	return err == nil && setting == "1"
}

func ask(db *sql.DB, query string) (answer string, err error) {
	err = db.QueryRowContext(context.Background(), query).Scan(&answer)
	return answer, err
}
