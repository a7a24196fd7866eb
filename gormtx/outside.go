package gormtx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"

	"gorm.io/gorm"
	"gorm.io/gorm/callbacks"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"

	"github.com/onward-go/outbox/persistence"
)

// outside returns a *gorm.DB whose every statement fails with ErrNoTransaction.
var outside = sync.OnceValue(func() *gorm.DB {
	db, err := gorm.Open(refusing{}, &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	if err != nil {
		panic(err) // refusing cannot fail to open
	}
	return db
})

// refusingPool returns a pool whose every statement fails likewise.
var refusingPool = sync.OnceValue(func() *sql.DB { return sql.OpenDB(refusing{}) })

// refusing is a dialector, and the driver under it, that connects to nothing.
type refusing struct{}

func (refusing) Connect(context.Context) (driver.Conn, error) {
	return nil, fmt.Errorf("gormtx: %w: call Tx inside Atomically, with the context that Atomically passes on", persistence.ErrNoTransaction)
}

func (r refusing) Driver() driver.Driver               { return r }
func (r refusing) Open(string) (driver.Conn, error)    { return r.Connect(context.Background()) }
func (refusing) Name() string                          { return "none" }
func (refusing) Migrator(*gorm.DB) gorm.Migrator       { return nil }
func (refusing) DataTypeOf(*schema.Field) string       { return "" }
func (refusing) Explain(query string, _ ...any) string { return query }

func (r refusing) Initialize(db *gorm.DB) error {
	db.ConnPool = refusingPool()
	callbacks.RegisterDefaultCallbacks(db, &callbacks.Config{})
	return nil
}

func (refusing) DefaultValueOf(*schema.Field) clause.Expression { return clause.Expr{SQL: "DEFAULT"} }

func (refusing) BindVarTo(w clause.Writer, _ *gorm.Statement, _ any) {
	_ = w.WriteByte('?') // a strings.Builder never fails
}

func (refusing) QuoteTo(w clause.Writer, name string) {
	_, _ = w.WriteString(name)
}
