package cdc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/onward-go/outbox/persistence"
)

// What a publication holds.
const (
	// OutboxAsOneTable is what one gives a tool such as Debezium: partitions
	// do not show. A TRUNCATE of a single partition does not either, nor what
	// happens to a partition after it was detached.
	OutboxAsOneTable = "FOR TABLE " + table + " WITH (publish_via_partition_root = true)"
	// EveryTable hides nothing: partitions are tables of their own, attached
	// or not.
	EveryTable = "FOR ALL TABLES"
)

// Postgres reads the WAL through a replication slot and pgoutput.
type Postgres struct {
	dsn, name string
}

// NewPostgres makes a publication and a slot of that name, and has the log say
// what DDL does to the outbox, which PostgreSQL does not decode.
func NewPostgres(ctx context.Context, dsn, name, publication string) (*Postgres, error) {
	for _, statement := range []string{
		logDDL,
		"CREATE PUBLICATION " + name + " " + publication,
		"SELECT pg_create_logical_replication_slot('" + name + "', 'pgoutput')",
	} {
		if err := execute(ctx, dsn, statement); err != nil {
			return nil, fmt.Errorf("slot %s: %w", name, err)
		}
	}
	return &Postgres{dsn: dsn, name: name}, nil
}

// CatchUp implements [Engine]. The slot holds the WAL until the consumer has
// taken it over.
func (p *Postgres) CatchUp(ctx context.Context, consumer persistence.OutboxCDCConsumer) (changes []Change, err error) {
	from, err := p.position(ctx, consumer)
	if err != nil {
		return nil, err
	}
	// The end of the log is a message in it.
	end := rand.Text()
	if err := execute(ctx, p.dsn, "SELECT pg_logical_emit_message(true, '"+endPrefix+"', '"+end+"')"); err != nil {
		return nil, err
	}
	conn, err := connect(ctx, p.dsn, "database")
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = pglogrepl.StartReplication(ctx, conn, p.name, from, pglogrepl.StartReplicationOptions{PluginArgs: []string{
		"proto_version '1'", "publication_names '" + p.name + "'", "messages 'true'",
	}})
	if err != nil {
		return nil, fmt.Errorf("slot %s from %s: %w", p.name, from, err)
	}
	s := &walStream{end: end, relations: map[uint32]*pglogrepl.RelationMessage{}}
	err = p.stream(ctx, conn, s, consumer)
	// The slot is free once the server has answered.
	_, stopErr := pglogrepl.SendStandbyCopyDone(ctx, conn)
	return s.changes, errors.Join(err, stopErr)
}

// position is zero for the place where the slot was made, or confirmed last.
func (p *Postgres) position(ctx context.Context, consumer persistence.OutboxCDCConsumer) (pglogrepl.LSN, error) {
	position, err := consumer.Position(ctx)
	if err != nil || position == nil {
		return 0, err
	}
	return pglogrepl.ParseLSN(string(position))
}

func (p *Postgres) stream(ctx context.Context, conn *pgconn.PgConn, s *walStream, consumer persistence.OutboxCDCConsumer) error {
	for {
		message, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return fmt.Errorf("slot %s: %w", p.name, err)
		}
		data, ok := message.(*pgproto3.CopyData)
		if !ok {
			if failed, is := message.(*pgproto3.ErrorResponse); is {
				return fmt.Errorf("slot %s: %w", p.name, pgconn.ErrorResponseToPgError(failed))
			}
			continue
		}
		if data.Data[0] != pglogrepl.XLogDataByteID {
			continue // a keepalive; nobody waits for long enough to need one
		}
		wal, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			return err
		}
		commit, err := s.read(wal.WALData)
		if err != nil {
			return fmt.Errorf("slot %s at %s: %w", p.name, wal.WALStart, err)
		}
		if commit == 0 || len(s.records) == 0 && !s.ended {
			continue
		}
		if err := consumer.Consume(ctx, s.records, []byte(commit.String())); err != nil {
			return err
		}
		s.records = nil
		if err := pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{WALWritePosition: commit}); err != nil {
			return err
		}
		if s.ended {
			return nil
		}
	}
}

// connect opens a plain session, or with replication "database" one that may
// read a slot. Times in the log are written as the session would show them.
func connect(ctx context.Context, dsn, replication string) (*pgconn.PgConn, error) {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["timezone"] = "UTC"
	if replication != "" {
		config.RuntimeParams["replication"] = replication
	}
	return pgconn.ConnectConfig(ctx, config)
}

func execute(ctx context.Context, dsn, statement string) error {
	conn, err := connect(ctx, dsn, "")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.Exec(ctx, statement).Close()
}
