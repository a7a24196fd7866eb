// Package sqlpgx saves round trips over database/sql where the driver is that of pgx: a
// transaction begins together with its first statement, and the COMMIT of a handler's
// goes to the server together with the begin of the next one and its marker.
//
// It is a package of its own, so that programs with another driver do not link pgx.
// Package gormtx, whose driver for PostgreSQL is pgx's, needs it not.
package sqlpgx

import (
	"github.com/onward-go/outbox/internal/face"
	"github.com/onward-go/outbox/internal/stdpgx"
	"github.com/onward-go/outbox/sqltx"
)

// Pipelined has transactions take no round trip for their begin alone, nor a
// dispatcher's for the COMMIT. Nothing else changes: a handler runs once the transaction
// before has committed, and each of them stands for itself. It has no effect with
// other drivers; where pgx is told to prepare no statements, none on dispatching.
//
// A transaction of Atomically begins with its first statement if that is an
// ExecContext with arguments; a tracer of pgx sees a batch of both. If it prepares a
// statement later on, or uses one that was prepared outside of it, as GORM does, it takes
// another BEGIN, of which PostgreSQL warns in its log that there is a transaction already.
func Pipelined() sqltx.Option { return face.Pipelined(stdpgx.Pipeline{}) }
