//go:build cgo

package sqltx_test

import _ "github.com/mattn/go-sqlite3"

func init() {
	drivers["cgo"] = driver{"sqlite3", "?_busy_timeout=10000&_journal_mode=WAL&_synchronous=OFF&_foreign_keys=1"}
}
