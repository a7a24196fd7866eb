package ctl

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/testdata/matrix"
)

// patience bounds each wait for something to happen; it is not to be reached.
const patience = time.Minute

// situation is an outbox in which something is to be found out.
type situation struct {
	*testing.T
	server matrix.Server
	dsn    string
	pool   *sql.DB
	outbox *sqltx.Outbox
	// transcript is what was asked and answered.
	transcript bytes.Buffer
}

// onServers makes the situation in an empty outbox on each server.
func onServers(t *testing.T, test func(s *situation)) {
	for _, server := range matrix.Servers {
		if server.Again {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			t.Parallel()
			s := newSituation(t, server)
			require.NoError(t, s.outbox.Migrate(t.Context()))
			test(s)
		})
	}
}

func newSituation(t *testing.T, server matrix.Server) *situation {
	t.Helper()
	s := &situation{T: t, server: server, dsn: server.New(t)}
	db := matrix.Open(t, server.Open(s.dsn), &gorm.Config{Logger: logger.Discard})
	var err error
	s.pool, err = db.DB()
	require.NoError(t, err)
	s.outbox = sqltx.New(s.pool, sqltx.Dialect(db.Name()))
	return s
}

// answer is what a call of outboxctl printed, and its exit code.
type answer struct {
	out, err string
	code     int
}

// call runs outboxctl on the situation's database, which the environment names.
func (s *situation) call(args ...string) answer {
	s.Helper()
	return s.callWith("", args...)
}

func (s *situation) callWith(input string, args ...string) answer {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "OUTBOX_DSN="+s.dsn)
	cmd.Stdin = strings.NewReader(input)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(s, err)
	}
	return answer{out.String(), problems.String(), cmd.ProcessState.ExitCode()}
}

// ask runs outboxctl and adds what it says to the transcript.
func (s *situation) ask(args ...string) answer {
	s.Helper()
	return s.askWith("", args...)
}

func (s *situation) askWith(input string, args ...string) answer {
	s.Helper()
	a := s.callWith(input, args...)
	fmt.Fprintf(&s.transcript, "$ outboxctl %s\n%s%s", quoted(args), a.out, a.err)
	if a.code != 0 {
		fmt.Fprintf(&s.transcript, "(exit code %d)\n", a.code)
	}
	fmt.Fprintln(&s.transcript)
	return a
}

// quoted is a command line for a shell.
func quoted(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		if words[i] = arg; strings.ContainsAny(arg, " ") {
			words[i] = "'" + arg + "'"
		}
	}
	return strings.Join(words, " ")
}

// golden compares the transcript with a file, once what differs from run to run
// is replaced.
func (s *situation) golden(name string) {
	s.Helper()
	got := normalized(s.transcript.String())
	path := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(s, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(s, err)
	require.Equal(s, string(want), got, "run the test with -update if the change is meant")
}

// event is one of user u-1, unless told otherwise.
func event(eventType string) events.Event {
	return events.Event{
		ID: events.NewID(), Type: eventType, AccountID: "acme", AggregateType: "User", AggregateID: "u-1", Payload: []byte(`{"reason":"spam"}`),
	}
}

// publish commits events, each in a transaction of its own.
func (s *situation) publish(evts ...events.Event) {
	s.Helper()
	for _, evt := range evts {
		require.NoError(s, s.outbox.Atomically(s.Context(), func(ctx context.Context) error {
			return events.NewPublisher(s.outbox).Publish(ctx, evt)
		}))
	}
}

// dispatcher has handlers of iam.v1.UserSuspended: each fails with its error.
func (s *situation) dispatcher(handlers map[string]error, opts ...events.Option) *events.Dispatcher {
	s.Helper()
	d := events.NewDispatcher(s.outbox, s.outbox, s.outbox, s.outbox, opts...)
	for name, err := range handlers {
		require.NoError(s, d.Subscribe(suspended, name, func(context.Context, events.Event) error { return err }))
	}
	return d
}

const suspended = "iam.v1.UserSuspended"

// settle has the dispatcher deliver everything that there is, until its cursor is
// past the last event or stays before one that is not settled.
func (s *situation) settle(d *events.Dispatcher, past events.Event) {
	s.Helper()
	s.eventually("the cursor is past event "+past.ID, func() bool {
		_, err := d.RunOnce(s.Context(), 100)
		if err != nil && !errors.Is(err, events.ErrDeadLettered) {
			s.Log(err)
		}
		state, err := s.outbox.Load(s.Context(), events.DefaultName)
		require.NoError(s, err)
		page, err := s.outbox.FindRecords(s.Context(), persistence.RecordQuery{ID: past.ID, Limit: 1, MostRows: 10_000})
		require.NoError(s, err)
		return len(page.Records) == 1 && state.Cursor.Compare(page.Records[0].Cursor()) >= 0
	})
}

// eventually waits until a fact is observed.
func (s *situation) eventually(what string, fact func() bool) {
	s.Helper()
	for deadline := time.Now().Add(patience); !fact(); {
		require.True(s, time.Now().Before(deadline), "%s: not seen within %s", what, patience)
		select {
		case <-s.Context().Done():
			s.Fatal("the test is over")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// exec runs a statement, as an administrator would.
func (s *situation) exec(statement string, args ...any) {
	s.Helper()
	_, err := s.pool.ExecContext(s.Context(), statement, args...)
	require.NoError(s, err)
}
