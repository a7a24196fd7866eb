package entiam

import (
	"context"

	"entgo.io/ent/dialect"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/entiam/ent"
)

// database is where the repositories' statements run.
type database struct {
	client  *ent.Client
	dialect string
}

func (d database) tx(ctx context.Context) *ent.Client { return Tx(ctx, d.dialect) }

// db returns a client in the transaction that ctx carries, and otherwise the
// one outside of it.
func (d database) db(ctx context.Context) *ent.Client {
	if persistence.InTransaction(ctx) {
		return d.tx(ctx)
	}
	return d.client
}

// locks reports whether the database has SELECT ... FOR UPDATE. On SQLite, a
// transaction is the only writer anyway.
func (d database) locks() bool { return d.dialect != dialect.SQLite }
