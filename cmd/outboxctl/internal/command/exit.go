package command

import (
	"errors"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/database"
	"github.com/onward-go/outbox/persistence"
)

// How a command ends.
const (
	exitOK      = 0
	exitError   = 1 // it could not be done
	exitUsage   = 2 // it was called wrongly
	exitFinding = 3 // it was done, and there is something to look at
)

// errFinding ends a command that has printed what there is to look at.
var errFinding = errors.New("there is something to look at")

// errUsage is wrapped by what is wrong with flags and arguments.
var errUsage = errors.New("wrong usage")

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.Is(err, errUsage), errors.Is(err, database.ErrDSN), errors.Is(err, persistence.ErrInvalid):
		return exitUsage
	}
	return exitError
}

// remedies say what to do about errors of the library that say only what is.
var remedies = []struct {
	err    error
	remedy string
}{
	{persistence.ErrSchema, "`outboxctl migrate status` shows the version; --prefix and --schema name the tables"},
	{persistence.ErrNotPrimary, "let the DSN name the primary"},
}

func remedy(err error) string {
	for _, r := range remedies {
		if errors.Is(err, r.err) {
			return r.remedy
		}
	}
	return ""
}
