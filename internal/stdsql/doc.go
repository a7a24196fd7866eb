// Package stdsql puts database/sql under the SQL core: a pool and a
// transaction that are sqlstore.Conn. The faces whose libraries stand on
// database/sql share it.
package stdsql
