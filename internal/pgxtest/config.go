package pgxtest

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Config returns the configuration of a pool that connects as db does, whose driver
// is that of pgx, and has as many connections; 0 is no limit.
func Config(ctx context.Context, db *sql.DB) (*pgxpool.Config, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var config *pgx.ConnConfig
	err = conn.Raw(func(driver any) error {
		of, ok := driver.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("pgx does not connect this database, %T does", driver)
		}
		config = of.Conn().Config()
		return nil
	})
	if err != nil {
		return nil, err
	}
	config.OnNotification = nil // it is that connection's
	pool, err := pgxpool.ParseConfig(config.ConnString())
	if err != nil {
		return nil, err
	}
	pool.ConnConfig, pool.MaxConns = config, int32(db.Stats().MaxOpenConnections)
	return pool, nil
}
