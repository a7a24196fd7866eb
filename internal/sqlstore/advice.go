package sqlstore

import (
	"reflect"
	"strings"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// answeredBy tells by a server's error which kind of database has answered, or "".
func answeredBy(err error) string {
	switch {
	case err == nil:
		return ""
	case sqlState(err) != "":
		return schema.Postgres
	case mysqlNumber(err) != 0:
		return schema.MySQL
	case inChain(err, func(e error) bool {
		t := reflect.TypeOf(e)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		return strings.Contains(t.PkgPath(), "sqlite")
	}):
		return schema.SQLite
	}
	return ""
}

// advised is an error with what to do about it.
type advised struct {
	error
	advice string
	kind   error // or nil
}

func (a advised) Error() string        { return a.error.Error() + ": " + a.advice }
func (a advised) Unwrap() error        { return a.error }
func (a advised) Is(target error) bool { return a.kind != nil && target == a.kind }

// advised adds, once, what to do about an error of the way to the database.
func (d *Dialect) advised(err error) error {
	if d == nil || inChain(err, func(e error) bool { _, is := e.(advised); return is }) {
		return err
	}
	if d.lacksPrivilege != nil && inChain(err, d.lacksPrivilege) {
		return advised{err, "grant what the role needs, all of which Validate names", persistence.ErrPrivilege}
	}
	if advice := d.advise(err); advice != "" {
		return advised{err, advice, nil}
	}
	return err
}

const (
	noDatabase = "create the database, or correct its name in the DSN"
	noLogin    = "correct user and password in the DSN, or let the user connect from here"
)

func postgresAdvice(err error) string {
	switch sqlState(err) {
	case "3D000":
		return noDatabase
	case "28P01", "28000":
		return noLogin
	}
	return ""
}

func mysqlAdvice(err error) string {
	switch mysqlNumber(err) {
	case 1049:
		return noDatabase
	case 1046:
		return "name the database in the DSN"
	case 1045:
		return noLogin
	}
	return ""
}

func sqliteAdvice(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "unable to open database file"):
		return "make the file's folder, and let the process write in it, since SQLite keeps files beside the database"
	case strings.Contains(text, "readonly database"):
		return "let the process write the file, and in its folder"
	}
	return ""
}
