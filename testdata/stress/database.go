package main

import (
	"context"
	"database/sql"
	"fmt"

	driver "github.com/go-sql-driver/mysql"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/gormtx"
)

// database is the outbox under stress and the application's tables beside it.
type database struct {
	*gorm.DB
	family family
	outbox *gormtx.Outbox
	prefix string
}

// family is a kind of database that the harness can stress.
type family struct {
	open    func(dsn string) gorm.Dialector
	serial  string                                        // type of a number that rises by itself
	prepare func(dsn string) (prepared string, err error) // names a database where the DSN does not
}

var families = map[string]family{
	"postgres": {postgres.Open, "BIGSERIAL", func(dsn string) (string, error) { return dsn, nil }},
	"mysql":    {mysql.Open, "BIGINT AUTO_INCREMENT", ownDatabase},
	"mariadb":  {mysql.Open, "BIGINT AUTO_INCREMENT", ownDatabase},
}

// ownDatabase makes a database on a server of MySQL's family.
func ownDatabase(dsn string) (string, error) {
	config, err := driver.ParseDSN(dsn)
	if err != nil || config.DBName != "" {
		return dsn, err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	config.DBName = "outbox_stress"
	_, err = db.Exec("CREATE DATABASE IF NOT EXISTS " + config.DBName)
	return config.FormatDSN(), err
}

func open(config Config, connections int) (*database, error) {
	family, ok := families[config.Server]
	if !ok {
		return nil, fmt.Errorf("no stress for server %q", config.Server)
	}
	db, err := gorm.Open(family.open(config.DSN), &gorm.Config{Logger: logger.Discard, SkipDefaultTransaction: true})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return &database{db, family, gormtx.New(db, gormtx.WithTablePrefix(config.Prefix)), config.Prefix}, nil
}

func (d *database) table(name string) string { return d.prefix + name }

// create makes the tables: aggregates with a version each, and effects with a
// number that rises in the order in which they were applied.
func (d *database) create(ctx context.Context, aggregates int) error {
	if err := d.outbox.Migrate(ctx); err != nil {
		return err
	}
	for _, statement := range []string{
		"CREATE TABLE " + d.table("aggregates") + " (id INTEGER PRIMARY KEY, version INTEGER NOT NULL)",
		"CREATE TABLE " + d.table("effects") + " (number " + d.family.serial + " PRIMARY KEY, event_id VARCHAR(64) NOT NULL, aggregate INTEGER NOT NULL, version INTEGER NOT NULL)",
	} {
		if err := d.WithContext(ctx).Exec(statement).Error; err != nil {
			return err
		}
	}
	for id := range aggregates {
		if err := d.WithContext(ctx).Exec("INSERT INTO "+d.table("aggregates")+" (id, version) VALUES (?, 0)", id).Error; err != nil {
			return err
		}
	}
	return nil
}

func (d *database) close() {
	if pool, err := d.DB.DB(); err == nil {
		_ = pool.Close() // the process ends, or the server does
	}
}
