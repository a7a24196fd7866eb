package main

import (
	"context"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// database is the outbox under stress and the application's tables beside it.
type database struct {
	*gorm.DB
	face
	family family
	prefix string
}

func open(config Config, connections int) (*database, error) {
	family, err := familyOf(config.Server)
	if err != nil {
		return nil, err
	}
	dialector, err := family.open(config.DSN, config.Isolation)
	if err != nil {
		return nil, err
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	face, err := openFace(config.Face, db, config.Prefix)
	if err != nil {
		return nil, err
	}
	return &database{db, face, family, config.Prefix}, nil
}

func (d *database) table(name string) string { return d.prefix + name }

// create makes the tables: aggregates with a version each, one more for the
// producer that stays open, and effects with a number that rises in the order
// in which they were applied.
func (d *database) create(ctx context.Context, aggregates int) error {
	if err := d.outbox.Migrate(ctx); err != nil {
		return err
	}
	statements := []string{"CREATE TABLE " + d.table("aggregates") + " (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)"}
	for _, effects := range effectTables {
		statements = append(statements, "CREATE TABLE "+d.table(effects)+" (number "+d.family.serial+" PRIMARY KEY, event_id VARCHAR(64) NOT NULL, aggregate INTEGER NOT NULL, version INTEGER NOT NULL)")
	}
	for _, statement := range statements {
		if err := d.WithContext(ctx).Exec(statement).Error; err != nil {
			return err
		}
	}
	for id := range aggregates + 1 {
		if err := d.WithContext(ctx).Exec("INSERT INTO "+d.table("aggregates")+" (id, version) VALUES (?, 0)", id).Error; err != nil {
			return err
		}
	}
	return nil
}

func (d *database) close() {
	d.face.close()
	if pool, err := d.DB.DB(); err == nil {
		_ = pool.Close() // the process ends, or the server does
	}
}
