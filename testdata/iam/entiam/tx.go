package entiam

import (
	"context"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
)

// Tx returns a client in the transaction that ctx carries, whoever began it.
// Without one, its statements fail with persistence.ErrNoTransaction.
func Tx(ctx context.Context, dialectName string) *ent.Client {
	driver := entsql.NewDriver(dialectName, entsql.Conn{ExecQuerier: sqltx.Tx(ctx)})
	return ent.NewClient(ent.Driver(joined{driver}))
}

// joined is a driver in a transaction that somebody else ends. What ent would
// wrap in a transaction of its own takes part in that one.
type joined struct{ *entsql.Driver }

func (j joined) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(j), nil }

func (j joined) BeginTx(context.Context, *entsql.TxOptions) (dialect.Tx, error) {
	return dialect.NopTx(j), nil
}

func (joined) Close() error { return nil }
