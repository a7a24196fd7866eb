package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// family is a kind of database that the harness can stress.
type family struct {
	// open connects with all sessions in an isolation level, or in the default
	// one where that is empty.
	open func(dsn, isolation string) (gorm.Dialector, error)
	// serial is the type of a number that rises by itself.
	serial string
	// prepare names a database where the DSN does not.
	prepare func(ctx context.Context, dsn string) (prepared string, err error)
	// again says that the transaction was rolled back for no fault of its own.
	again func(error) bool
	// controls are the ways to do it wrong here.
	controls map[string]control
}

// families are the kinds of servers, by name.
var families = map[string]family{
	"postgres":   postgresFamily,
	"postgres15": postgresFamily,
	"mysql":      mysqlFamily("transaction_isolation"),
	"mariadb":    mysqlFamily("tx_isolation"),
}

func familyOf(server string) (family, error) {
	f, ok := families[server]
	if !ok {
		return family{}, fmt.Errorf("no stress for server %q: add it to the table of families", server)
	}
	return f, nil
}

// isolations are the levels in which nothing may be lost.
var isolations = []string{"READ COMMITTED", "REPEATABLE READ"}

// control returns what is done wrong: nothing without a name.
func (f family) control(name string) (control, error) {
	c, ok := f.controls[name]
	if name != "" && name != twoWindows && !ok {
		return c, fmt.Errorf("no control %q here: use one of %s", name, strings.Join(f.controlNames(), ", "))
	}
	return c, nil
}

func (f family) controlNames() []string {
	names := []string{twoWindows}
	for name := range f.controls {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
