package cdc

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/onward-go/outbox/persistence"
)

// serverID is what the engine calls itself among the server's replicas.
const serverID = 4711

// MySQL reads the binlog of MySQL or MariaDB as a replica does.
type MySQL struct {
	config  *driver.Config
	server  replication.BinlogSyncerConfig
	start   mysql.Position
	columns []string
}

// NewMySQL refuses a server that does not log whole rows.
func NewMySQL(ctx context.Context, dsn string) (*MySQL, error) {
	config, err := driver.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	m := &MySQL{config: config, server: replication.BinlogSyncerConfig{
		ServerID: serverID, Flavor: mysql.MySQLFlavor, User: config.User, Password: config.Passwd,
		Charset: "utf8mb4", Logger: slog.New(slog.DiscardHandler),
		// The caller sees a broken connection, and goes on from its position.
		DisableRetrySync: true, VerifyChecksum: true,
	}}
	host, port, err := net.SplitHostPort(config.Addr)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, err
	}
	m.server.Host, m.server.Port = host, uint16(number)
	return m, m.inspect(ctx)
}

func (m *MySQL) inspect(ctx context.Context) error {
	db, err := m.open()
	if err != nil {
		return err
	}
	defer db.Close()
	var version, format, image string
	var logs bool
	err = db.QueryRowContext(ctx, "SELECT version(), @@log_bin, @@binlog_format, @@binlog_row_image").Scan(&version, &logs, &format, &image)
	if err != nil {
		return err
	}
	if !logs || format != "ROW" || image != "FULL" {
		return fmt.Errorf("the server has log_bin %t, binlog_format %s, binlog_row_image %s: they have to be on, ROW and FULL", logs, format, image)
	}
	if strings.Contains(version, "MariaDB") {
		m.server.Flavor = mysql.MariaDBFlavor
	}
	// The log numbers the columns.
	rows, err := db.QueryContext(ctx, `SELECT column_name FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name = '`+table+`' ORDER BY ordinal_position`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		m.columns = append(m.columns, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	m.start, err = m.end(ctx, db)
	return err
}

func (m *MySQL) open() (*sql.DB, error) {
	connector, err := driver.NewConnector(m.config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// end returns the present end of the log.
func (m *MySQL) end(ctx context.Context, db *sql.DB) (p mysql.Position, err error) {
	query := "SHOW BINARY LOG STATUS"
	if m.server.Flavor == mysql.MariaDBFlavor {
		query = "SHOW MASTER STATUS"
	}
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return p, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return p, err
	}
	row := make([]any, len(names))
	for i := range row {
		row[i] = new(sql.RawBytes) // the servers differ in what comes after
	}
	row[0], row[1] = &p.Name, &p.Pos
	if !rows.Next() {
		return p, fmt.Errorf("%s returns no row: %w", query, rows.Err())
	}
	return p, rows.Scan(row...)
}

// CatchUp implements [Engine].
func (m *MySQL) CatchUp(ctx context.Context, consumer persistence.OutboxCDCConsumer) ([]Change, error) {
	from, err := m.position(ctx, consumer)
	if err != nil {
		return nil, err
	}
	db, err := m.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	end, err := m.end(ctx, db)
	if err != nil {
		return nil, err
	}
	s := &binlogStream{database: m.config.DBName, columns: m.columns, file: from.Name}
	if from.Compare(end) >= 0 {
		return nil, nil
	}
	syncer := replication.NewBinlogSyncer(m.server)
	defer syncer.Close()
	streamer, err := syncer.StartSync(from)
	if err != nil {
		return nil, fmt.Errorf("binlog from %s: %w", from, err)
	}
	at := from
	for at.Compare(end) < 0 {
		event, err := streamer.GetEvent(ctx)
		if err != nil {
			return s.changes, fmt.Errorf("binlog after %s: %w", at, err)
		}
		complete, err := s.read(event)
		if err != nil {
			return s.changes, fmt.Errorf("binlog after %s: %w", at, err)
		}
		at = s.position(event)
		if !complete || len(s.records) == 0 {
			continue
		}
		if err := consumer.Consume(ctx, s.records, formatPosition(at)); err != nil {
			return s.changes, err
		}
		s.records = nil
	}
	// What the server calls its end lies between two transactions.
	return s.changes, consumer.Consume(ctx, nil, formatPosition(at))
}

// position is where the consumer is, at first where the engine was made.
func (m *MySQL) position(ctx context.Context, consumer persistence.OutboxCDCConsumer) (mysql.Position, error) {
	position, err := consumer.Position(ctx)
	if err != nil || position == nil {
		return m.start, err
	}
	file, offset, _ := strings.Cut(string(position), ":")
	number, err := strconv.ParseUint(offset, 10, 32)
	if err != nil {
		return mysql.Position{}, fmt.Errorf("position %q is none of this engine: %w", position, err)
	}
	return mysql.Position{Name: file, Pos: uint32(number)}, nil
}

func formatPosition(p mysql.Position) []byte { return fmt.Appendf(nil, "%s:%d", p.Name, p.Pos) }
