package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	_ "modernc.org/sqlite" // the cgo-free driver

	"github.com/onward-go/outbox/gormtx"
)

// place says where a run keeps its tables, to both processes.
type place struct {
	DSN    string // of a PostgreSQL server, or empty
	Schema string // the run's own on that server
	Dir    string // the run's own, if there is no server
}

// newPlace returns a place that no other run uses.
func newPlace(dsn string) (place, error) {
	if dsn != "" {
		return place{DSN: dsn, Schema: "demo_" + strings.ToLower(rand.Text())}, nil
	}
	dir, err := os.MkdirTemp("", "outbox-demo-")
	if err != nil {
		return place{}, fmt.Errorf("a directory for the database: %w", err)
	}
	return place{Dir: dir}, nil
}

func (p place) server() string {
	if p.DSN != "" {
		return "postgres"
	}
	return "sqlite"
}

func (p place) dialector() gorm.Dialector {
	if p.DSN != "" {
		return postgres.Open(p.DSN)
	}
	// There is one writer at a time, and two processes that write: they wait
	// for each other. In WAL mode readers wait for nobody. With
	// synchronous(normal) a commit survives the death of its process, though
	// not that of the machine.
	file := url.URL{Path: filepath.ToSlash(filepath.Join(p.Dir, "demo.db"))}
	return sqlite.Dialector{
		DriverName: "sqlite",
		DSN:        "file:" + file.EscapedPath() + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)",
	}
}

// remove removes the directory. The schema is removed with a connection, see
// [database.discard].
func (p place) remove() error {
	return os.RemoveAll(p.Dir) // nothing, if there is none
}

// prefix goes before the name of each table.
func (p place) prefix() string {
	if p.Schema != "" {
		return p.Schema + "."
	}
	return ""
}

func (p place) outboxOptions() []gormtx.Option {
	if p.Schema != "" {
		return []gormtx.Option{gormtx.WithSchema(p.Schema)}
	}
	return nil
}

// String is for the environment of the other process.
func (p place) String() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return string(text)
}

func parsePlace(text string) (p place, err error) {
	return p, json.Unmarshal([]byte(text), &p)
}
