// Command replica is a service with an outbox: it changes aggregates, publishes, and
// dispatches, until its standard input ends.
//
//	replica -dialect postgres -driver pgx -dsn DSN -name NAME
//
// With -migrate it makes or upgrades the tables, and with -retain it runs retention, and
// does nothing else. It exits with 1 if the library refuses anything.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

var (
	dialect = flag.String("dialect", "", "the dialect")
	driver  = flag.String("driver", "", "the driver of database/sql")
	dsn     = flag.String("dsn", "", "the database")
	name    = flag.String("name", "", "who publishes and applies")
	migrate = flag.Bool("migrate", false, "migrate")
	retain  = flag.Bool("retain", false, "run retention")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintf(os.Stderr, "replica %s: %v\n", *name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	db, err := sql.Open(*driver, *dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	outbox := sqltx.New(db, sqltx.Dialect(*dialect))
	switch {
	case *migrate:
		return outbox.Migrate(ctx)
	case *retain:
		_, err := persistence.Retain(ctx, outbox, 30*24*time.Hour, persistence.RetentionOptions{})
		return err
	}
	s := &service{db: db, outbox: outbox, publisher: events.NewPublisher(outbox)}
	return s.serve(ctx)
}

// service is a replica at work.
type service struct {
	db        *sql.DB
	outbox    *sqltx.Outbox
	publisher *events.Publisher

	mu      sync.Mutex
	refused error
}

func (s *service) serve(ctx context.Context) error {
	d := events.NewDispatcher(s.outbox, s.outbox, s.outbox, s.outbox)
	if err := d.Subscribe("upgrade.v1.Changed", "apply", s.apply); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var polling sync.WaitGroup
	polling.Add(1)
	go func() {
		defer polling.Done()
		s.refuse(d.Poll(ctx, 20*time.Millisecond, 100, s.refuse))
	}()
	for n := 0; ctx.Err() == nil; n++ {
		if err := s.change(context.WithoutCancel(ctx), "a-"+strconv.Itoa(n%3)); err != nil && !s.outbox.IsTransient(err) {
			s.refuse(err)
			break
		}
		time.Sleep(5 * time.Millisecond) // a service is not always busy
	}
	stop()
	polling.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// refuse remembers an error of the library that says that it does not work here. What
// else goes wrong, goes by.
func (s *service) refuse(err error) {
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "replica %s: %v\n", *name, err)
	for _, refusal := range []error{persistence.ErrSchema, persistence.ErrUnsupported, persistence.ErrInvalid, persistence.ErrPrivilege} {
		if errors.Is(err, refusal) {
			s.mu.Lock()
			s.refused = err
			s.mu.Unlock()
		}
	}
}

// change raises an aggregate's number and publishes it.
func (s *service) change(ctx context.Context, aggregate string) error {
	return s.outbox.Atomically(ctx, func(ctx context.Context) error {
		tx := sqltx.Tx(ctx)
		if _, err := tx.ExecContext(ctx, numbered("UPDATE aggregates SET n = n + 1 WHERE id = ?"), aggregate); err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, numbered("SELECT n FROM aggregates WHERE id = ?"), aggregate).Scan(&n); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, numbered("INSERT INTO published (aggregate, n, replica) VALUES (?, ?, ?)"), aggregate, n, *name); err != nil {
			return err
		}
		return s.publisher.Publish(ctx, events.Event{
			Type: "upgrade.v1.Changed", AggregateType: "Aggregate", AggregateID: aggregate, Payload: []byte(strconv.Itoa(n)),
		})
	})
}

// apply notes an event in the order of the effects.
func (s *service) apply(ctx context.Context, evt events.Event) error {
	n, err := strconv.Atoi(string(evt.Payload))
	if err != nil {
		return err
	}
	_, err = sqltx.Tx(ctx).ExecContext(ctx, numbered("INSERT INTO effects (aggregate, n, replica) VALUES (?, ?, ?)"), evt.AggregateID, n, *name)
	return err
}

// numbered returns a statement with the placeholders of the database.
func numbered(query string) string {
	if *dialect != "postgres" {
		return query
	}
	var text strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			fmt.Fprint(&text, "$", i)
		}
		text.WriteString(part)
	}
	return text.String()
}
