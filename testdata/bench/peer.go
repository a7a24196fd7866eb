package main

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// peer is a library on PostgreSQL, through pgx.
type peer struct {
	*benchmark
	concurrency int
}

// message is the event of a library that wants JSON.
type message struct {
	Counter int    `json:"counter"`
	Text    string `json:"text"`
}

// messageOf returns the event of a counter, as long as those of the outbox.
func messageOf(counter int) message {
	return message{counter, strings.Repeat("x", len(event.Payload)-len(`{"counter":100,"text":""}`))}
}

// effect is the change that the handler makes.
func (p peer) effect(counter int) statement {
	return statement{p.expand("UPDATE {prefix}effect SET n = n + 1 WHERE id = $1"), []any{counter}}
}

// pool opens so many connections of a library's own.
func (p peer) pool(ctx context.Context, connections int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	return pgxpool.NewWithConfig(ctx, config)
}

// scan returns a number.
func (p peer) scan(ctx context.Context, query string) (n int64, err error) {
	err = p.db.WithContext(ctx).Raw(query).Scan(&n).Error
	return n, err
}

// exec runs scripts in one session, outside of a transaction.
func (p peer) exec(ctx context.Context, scripts ...string) (err error) {
	session, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close(ctx)) }()
	for _, script := range scripts {
		if _, err := session.Exec(ctx, script); err != nil {
			return err
		}
	}
	return nil
}
