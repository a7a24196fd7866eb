package main

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/testdata/iam/app"
	"github.com/onward-go/outbox/testdata/iam/gormiam"
)

// database is one process's connection to the tables of a run.
type database struct {
	*gorm.DB
	place  place
	outbox *gormtx.Outbox
}

func (p place) open(connections int) (*database, error) {
	db, err := gorm.Open(p.dialector(), &gorm.Config{
		Logger:         logger.Discard,
		NamingStrategy: schema.NamingStrategy{TablePrefix: p.prefix()},
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.server(), err)
	}
	pool, err := db.DB()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", p.server(), err)
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return &database{db, p, gormtx.New(db, p.outboxOptions()...)}, nil
}

func (d *database) app() *app.App { return app.New(gormiam.Wire(d.DB, d.outbox)) }

// migrate creates the tables, the outbox's and the example's.
func (d *database) migrate(ctx context.Context) error {
	if err := d.outbox.Migrate(ctx); err != nil {
		return err
	}
	return gormiam.Migrate(ctx, d.DB)
}

func (d *database) close() error {
	pool, err := d.DB.DB()
	if err != nil {
		return err
	}
	return pool.Close()
}

// discard removes the tables of the run.
func (d *database) discard() error {
	var err error
	if d.place.Schema != "" {
		err = d.Exec(`DROP SCHEMA IF EXISTS "` + d.place.Schema + `" CASCADE`).Error
	}
	return errors.Join(err, d.close(), d.place.remove())
}
