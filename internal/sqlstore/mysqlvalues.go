package sqlstore

import (
	"reflect"
	"time"
)

// DATETIME begins with the year 1000, which stands for the zero time.
var mysqlZero = time.Date(1000, 1, 1, 0, 0, 0, 0, time.UTC)

const mysqlTime = "2006-01-02 15:04:05.000000"

func encodeMySQLTime(t time.Time) any {
	if t.Before(mysqlZero) {
		t = mysqlZero
	}
	return t.UTC().Format(mysqlTime)
}

func decodeMySQLTime(text string) (time.Time, error) {
	t, err := time.Parse(time.DateTime, text) // takes a fraction, too
	if err == nil && t.Equal(mysqlZero) {
		t = time.Time{}
	}
	return t, err
}

// mysqlEndsTransaction reports errors after which InnoDB has rolled the whole
// transaction back, or may have, and the session goes on in autocommit.
func mysqlEndsTransaction(err error) bool {
	switch mysqlNumber(err) {
	case 1213, // deadlock
		1205, // lock wait timeout, with innodb_rollback_on_timeout
		1020, // MariaDB: record has changed since last read
		1180, // error during commit
		3101: // rolled back by the replication group
		return true
	}
	return false
}

// mysqlIsLockTimeout reports that a statement gave up waiting, by itself, as a
// deadlock's victim, or since it was interrupted.
func mysqlIsLockTimeout(err error) bool {
	switch mysqlNumber(err) {
	case 1205, 1213, 1317:
		return true
	}
	return false
}

// mysqlLacksPrivilege reports that the user may not run a statement.
func mysqlLacksPrivilege(err error) bool {
	switch mysqlNumber(err) {
	case 1044, // for the database
		1142, // the table
		1143, // the column
		1227, // at all
		1345, // nor have it explained
		1370: // the routine
		return true
	}
	return false
}

// CannotPrepare reports the answer of MySQL and MariaDB that they do not prepare
// statements of this kind. It has not run.
func CannotPrepare(err error) bool { return mysqlNumber(err) == 1295 }

// mysqlNumber returns the server's error number, or 0. Drivers give it in a
// field, not by a method, so it takes reflection to do without an import.
func mysqlNumber(err error) uint16 {
	for err != nil {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() == reflect.Struct {
			if f := v.FieldByName("Number"); f.IsValid() && f.Kind() == reflect.Uint16 {
				return uint16(f.Uint())
			}
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				if n := mysqlNumber(e); n != 0 {
					return n
				}
			}
			return 0
		default:
			return 0
		}
	}
	return 0
}
