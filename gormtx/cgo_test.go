//go:build cgo

package gormtx_test

import (
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
)

func init() {
	drivers["cgo"] = func(path string) gorm.Dialector {
		return sqlite.Open("file:" + path + "?_busy_timeout=10000&_journal_mode=WAL&_synchronous=OFF&_foreign_keys=1")
	}
}
