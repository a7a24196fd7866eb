// Package libraries shows the outbox beside libraries that stand on database/sql and
// have no face of their own.
package libraries
