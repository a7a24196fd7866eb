package servers

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// SkipVar names the environment variable that lists, separated by commas, the
// kinds of servers whose tests the user wants to skip.
const SkipVar = "OUTBOX_TEST_SKIP"

// Kind describes one kind of database server. The kinds are package variables,
// such as [Postgres]; [Lookup] finds one by its name.
type Kind struct {
	// Name is what users call it: in SkipVar, in flags, in log lines.
	Name string
	// EnvVar is the environment variable that may hold the DSN of a server
	// that is already running. Its user must be able to create databases.
	EnvVar string
	// ImageVar is the environment variable that may name another image.
	ImageVar string
	// Image is the official image.
	Image string
	// LocalImage is the image that the script in images builds.
	LocalImage string
	// Package names the Debian packages, separated by spaces, that bring the
	// server's programs.
	Package string

	// script builds LocalImage: its name in images, and its arguments.
	script []string
	// installer is the command that brings the programs, where that is not
	// simply the installation of Package.
	installer string
	// pinned says that no other version of the server will do.
	pinned bool

	// accounts are the users that may own the server when root starts it, the
	// most specific first.
	accounts []string
	// stopSignal asks for a clean shutdown that does not wait for clients.
	stopSignal syscall.Signal
	// deathSignal ends the server at once when its parent has died.
	deathSignal syscall.Signal

	engine  engine
	flushes bool
}

// Flushing returns the kind whose servers flush to disk what they commit, as they
// do in production and tests need not, for those who measure that. It is not among
// [Kinds]: start it with [StartOwn].
func (k *Kind) Flushing() *Kind {
	flushing := *k
	flushing.engine, flushing.flushes = k.engine.flushing(), true
	return &flushing
}

// engine is what a kind of server does in its own way. A new kind is one entry
// in kinds and one file with its engine.
type engine interface {
	// address returns host and port of the server in a DSN.
	address(dsn string) (string, error)
	// probe connects once and returns the server's version.
	probe(ctx context.Context, dsn string) (version string, err error)
	// createDatabase returns the DSN of the new database.
	createDatabase(ctx context.Context, dsn, name string) (string, error)
	dropDatabase(ctx context.Context, dsn, name string) error

	// container says how the server runs in its official image.
	container() containerSpec

	// findPrograms returns the directory of the server's programs. An error
	// that wraps errUnavailable says that there are none.
	findPrograms() (string, error)
	// initialise creates the data directory.
	initialise(ctx context.Context, l *local) error
	// command returns the program and arguments that serve the data
	// directory on 127.0.0.1 and the given port.
	command(l *local) (program string, args []string)
	localDSN(port int) string
	// flushing returns the engine that flushes to disk what it commits.
	flushing() engine
}

var kinds = []*Kind{Postgres, Postgres15, MySQL, MariaDB}

// Kinds returns all kinds of servers.
func Kinds() []*Kind { return slices.Clone(kinds) }

// Lookup returns the kind with the given name.
func Lookup(name string) (*Kind, error) {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		if k.Name == name {
			return k, nil
		}
		names[i] = k.Name
	}
	return nil, fmt.Errorf("unknown kind of server %q: use one of %s", name, strings.Join(names, ", "))
}

// Skipped reports whether the user excluded this kind through [SkipVar].
func (k *Kind) Skipped() bool {
	for name := range strings.SplitSeq(os.Getenv(SkipVar), ",") {
		if strings.TrimSpace(name) == k.Name {
			return true
		}
	}
	return false
}

// known returns an error unless k is one of the table.
func (k *Kind) known() error {
	if k == nil {
		return fmt.Errorf("no kind of server given: use one that Kinds returns")
	}
	if !k.flushes && !slices.Contains(kinds, k) {
		_, err := Lookup(k.Name)
		if err == nil {
			err = fmt.Errorf("kind of server %q is a copy: use the one that Lookup returns", k.Name)
		}
		return err
	}
	return nil
}
