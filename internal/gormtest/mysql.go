package gormtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"github.com/onward-go/outbox/gormtx"
)

// deadlock makes the transaction of ctx the victim of a deadlock. InnoDB picks
// the one that has changed less.
func deadlock(ctx context.Context, db *gorm.DB) error {
	pool, err := db.DB()
	if err != nil {
		return err
	}
	if pool.Stats().MaxOpenConnections == 1 { // nobody to meet
		return gormtx.Tx(ctx).Exec("KILL CONNECTION_ID()").Error
	}
	const touch = "UPDATE outboxtest_lock SET v = v + 1 WHERE k = ?"
	if err := gormtx.Tx(ctx).Exec(touch, 1).Error; err != nil {
		return err
	}
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- db.WithContext(ctx).Transaction(func(other *gorm.DB) error {
			defer close(ready)
			if err := other.Exec(touch, 2).Error; err != nil {
				return err
			}
			for k := 10; k < 200; k++ {
				if err := other.Exec("INSERT INTO outboxtest_lock VALUES (?, 0)", k).Error; err != nil {
					return err
				}
			}
			ready <- struct{}{}
			_ = other.Exec(touch, 1).Error // waits for the victim
			return errors.New("roll back")
		})
	}()
	select {
	case <-ready:
	case err := <-done:
		return err
	}
	err = gormtx.Tx(ctx).Exec(touch, 2).Error
	<-done
	return err
}

// disconnect cuts the connection of the transaction of ctx behind its back.
func disconnect(ctx context.Context, db *gorm.DB) error {
	var id int64
	if err := gormtx.Tx(ctx).Raw("SELECT CONNECTION_ID()").Scan(&id).Error; err != nil {
		return err
	}
	pool, err := db.DB()
	if err != nil {
		return err
	}
	if pool.Stats().MaxOpenConnections == 1 {
		return gormtx.Tx(ctx).Exec("KILL CONNECTION_ID()").Error
	}
	return db.WithContext(ctx).Exec(fmt.Sprintf("KILL %d", id)).Error // it takes no arguments
}

// gapLocks reports whether InnoDB takes gap locks where MySQL, and not MariaDB,
// leaves one behind: at the place of a row whose insert was rolled back to a
// savepoint.
func gapLocks(db *gorm.DB) bool {
	var version, isolation string
	if db.Raw("SELECT VERSION()").Scan(&version).Error != nil || strings.Contains(version, "MariaDB") {
		return false
	}
	return db.Raw("SELECT @@transaction_isolation").Scan(&isolation).Error != nil || isolation == "REPEATABLE-READ"
}

// snapshotIsolation reports whether MariaDB refuses to lock a row that has
// changed since the transaction's snapshot. MySQL does not know the variable.
func snapshotIsolation(db *gorm.DB) bool {
	var setting, isolation string
	return db.Raw("SELECT @@tx_isolation").Scan(&isolation).Error == nil && isolation == "REPEATABLE-READ" &&
		db.Raw("SELECT @@innodb_snapshot_isolation").Scan(&setting).Error == nil && setting == "1"
}
