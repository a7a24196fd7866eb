package persistence

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Validator looks, before an application begins its work, whether an outbox can do
// it. It writes nothing.
type Validator interface {
	// Validate returns everything that is wrong, or may go wrong, for what the
	// application does; none means that it publishes and dispatches.
	//
	// The error is that of [Validation.Err], or says why the database could not be
	// asked. It is [ErrInvalid] for an unknown role, and returned at once for what
	// is wrong with the store's options.
	//
	// It works outside of any transaction that ctx carries.
	Validate(ctx context.Context, roles ...Role) (Validation, error)
}

// Role is a part of the work, for which a database user has its privileges.
type Role string

const (
	// RoleProducer publishes.
	RoleProducer Role = "producer"
	// RoleDispatcher delivers.
	RoleDispatcher Role = "dispatcher"
	// RoleRetention makes and drops partitions, and frees dedup keys.
	RoleRetention Role = "retention"
)

// CheckRoles returns the roles, or those of none, and [ErrInvalid] for an unknown
// one, for authors of stores.
func CheckRoles(roles []Role) ([]Role, error) {
	if len(roles) == 0 {
		return []Role{RoleProducer, RoleDispatcher}, nil
	}
	for _, role := range roles {
		if role != RoleProducer && role != RoleDispatcher && role != RoleRetention {
			return nil, fmt.Errorf("%w: role %q, it must be %s, %s or %s", ErrInvalid, role, RoleProducer, RoleDispatcher, RoleRetention)
		}
	}
	return roles, nil
}

// Validation is what [Validator.Validate] has found.
type Validation struct {
	// Server is the database's name and version, as far as it is known.
	Server string `json:"server"`
	// Now is the database's clock, and ClockAhead how far it is ahead of that of
	// this process, in seconds.
	Now        time.Time `json:"now,omitzero"`
	ClockAhead Seconds   `json:"clock_ahead_seconds"`
	// Findings is empty if all is well.
	Findings []Finding `json:"findings"`
}

// Severity says what a [Finding] means.
type Severity string

const (
	// SeverityError is what keeps the library from keeping its promises, or from
	// working at all.
	SeverityError Severity = "error"
	// SeverityWarning is what will be in the way some day, or costs something.
	SeverityWarning Severity = "warning"
)

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity `json:"severity"`
	// Problem is what is wrong, and Remedy what to do.
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
	// Kind is [ErrUnsupported], [ErrSchema], [ErrNotPrimary] or [ErrPrivilege]; nil
	// for a warning that no call would be refused for.
	Kind error `json:"-"`
}

// Error returns kind, problem and remedy in one line.
func (f Finding) Error() string {
	text := f.Problem + ": " + f.Remedy
	if f.Kind != nil {
		text = f.Kind.Error() + ": " + text
	}
	return text
}

// Unwrap returns the kind.
func (f Finding) Unwrap() error { return f.Kind }

// Err returns an error that joins all findings of [SeverityError], or nil. By
// [errors.Is] it is each of their kinds.
func (v Validation) Err() error {
	var all []error
	for _, f := range v.Findings {
		if f.Severity == SeverityError {
			all = append(all, f)
		}
	}
	return errors.Join(all...)
}

// String returns a line for each finding, its severity first.
func (v Validation) String() string {
	var text strings.Builder
	for _, f := range v.Findings {
		fmt.Fprintf(&text, "%s: %s\n", f.Severity, f.Error())
	}
	return text.String()
}
