// Package sqlpgx makes dispatching over database/sql faster where the driver is
// that of pgx: the COMMIT of a handler's transaction goes to the server in one round
// trip with the begin of the next one and its marker.
//
// It is a package of its own, so that programs with another driver do not link pgx.
// Package gormtx, whose driver for PostgreSQL is pgx's, needs it not.
package sqlpgx

import (
	"github.com/onward-go/outbox/internal/face"
	"github.com/onward-go/outbox/internal/stdpgx"
	"github.com/onward-go/outbox/sqltx"
)

// Pipelined has a dispatcher's transactions follow each other without a round trip
// for the COMMIT alone. Nothing else changes: a handler runs once the transaction
// before has committed, and each of them stands for itself. It has no effect with
// other drivers, or where pgx is told to prepare no statements.
func Pipelined() sqltx.Option { return face.Pipelined(stdpgx.Of) }
