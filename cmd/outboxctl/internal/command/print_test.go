package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/database"
	"github.com/onward-go/outbox/persistence"
)

func TestColumnsAreAligned(t *testing.T) {
	var out bytes.Buffer
	p := newPage(&out)
	p.row("NAME", "STATE")
	p.row("a longer name", "held")
	p.say("A sentence that is longer than any column.")
	p.row("é", "-")
	p.row("aaa", " ")
	require.NoError(t, p.end())
	require.Equal(t, `NAME           STATE
a longer name  held
A sentence that is longer than any column.
é    -
aaa
`, out.String())
}

// A stack trace keeps its lines, each of them in the column of the text.
func TestATextOfSeveralLinesStandsInItsColumn(t *testing.T) {
	var out bytes.Buffer
	p := newPage(&out)
	p.row("handler", "h")
	p.lines("error", "panic: boom\n\tat here\r\n\x1b[31mred\n")
	require.NoError(t, p.end())
	require.Equal(t, `handler  h
error    panic: boom
             at here
         \x1b[31mred
`, out.String())
}

// What is in the database can neither move the cursor nor break a table.
func TestControlCharactersAreShown(t *testing.T) {
	require.Equal(t, `a\tb\nc\x1b[31m\u202e d é 日`, oneLine("a\tb\nc\x1b[31m\u202e d é 日"))
	require.Equal(t, `\x00\ufffd`, strings.ReplaceAll(oneLine("\x00\xff"), "�", `\ufffd`))
}

func TestTimesAreRead(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-11-30T07:00:00.000001Z": time.Date(2026, 11, 30, 7, 0, 0, 1000, time.UTC),
		"2026-11-30T07:00:00+02:00":   time.Date(2026, 11, 30, 5, 0, 0, 0, time.UTC),
		"2026-11-30 07:00:00":         time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC),
		"2026-11-30":                  time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC),
		"90m":                         now.Add(-90 * time.Minute),
		"2d":                          now.AddDate(0, 0, -2),
		"0s":                          now,
	} {
		var i instant
		require.NoError(t, i.Set(text), text)
		require.Equal(t, want, i.time(now), text)
	}
	for _, text := range []string{"", "noon", "-1h", "d", "-2d", "2026-13-01"} {
		require.Error(t, new(instant).Set(text), text)
	}
	for text, want := range map[string]persistence.Cursor{
		"beginning":                       {},
		"2026-11-30T07:00:00.000001Z/a/b": {CreatedTime: time.Date(2026, 11, 30, 7, 0, 0, 1000, time.UTC), ID: "a/b"},
	} {
		got, err := parsePosition(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String(), "a position can be copied from a list")
	}
	key, err := parseKey("2026-11-30T07:00:00.000001Z/a/b a handler")
	require.NoError(t, err)
	require.Equal(t, "a handler", key.Handler)
	require.Equal(t, "a/b", key.Event.ID)
	for _, text := range []string{"", "2026-11-30T07:00:00Z/a", "2026-11-30T07:00:00Z h", "a h"} {
		_, err := parseKey(text)
		require.Error(t, err, text)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{errors.New("the network is down"), 1},
		{fmt.Errorf("%w", errNotConfirmed), 1},
		{fmt.Errorf("%w: what", errUsage), 2},
		{fmt.Errorf("%w: what", database.ErrDSN), 2},
		{errors.Join(errFinding), 3},
	} {
		require.Equal(t, c.code, exitCode(c.err), "%v", c.err)
	}
}

// Every command has a help that says what it takes, and refuses what it does not.
func TestEveryCommandRefusesWhatItDoesNotTake(t *testing.T) {
	run := func(args ...string) (code int, out, problems string) {
		var o, e bytes.Buffer
		code = Run(t.Context(), args, strings.NewReader(""), &o, &e)
		return code, o.String(), e.String()
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		code, out, _ := run(append(path, "--help")...)
		require.Zero(t, code)
		require.Contains(t, out, "Usage:", path)
		code, _, problems := run(append(path, "--no-such-flag")...)
		require.Equal(t, exitUsage, code, path)
		require.Contains(t, problems, "--help", path)
		if c.Name() != "status" { // which takes any number of names
			code, _, _ = run(append(path, "too", "many", "arguments", "here")...)
			require.Equal(t, exitUsage, code, path)
		}
		if c.HasSubCommands() {
			code, _, problems = run(path...)
			require.Equal(t, exitUsage, code, path)
			require.Contains(t, problems, "needs a command", path)
		}
		for _, below := range c.Commands() {
			if below.IsAvailableCommand() {
				walk(below)
			}
		}
	}
	walk((&app{}).root())
}

func TestTheTimeoutIsNamed(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and says nothing
	require.NoError(t, err)
	defer mute.Close()
	t.Setenv(dsnVariable, "postgres://u:hidden@"+mute.Addr().String()+"/db?sslmode=disable")
	var out, problems bytes.Buffer
	require.Equal(t, exitError, Run(context.Background(), []string{"cursor", "list", "--timeout", "20ms"}, strings.NewReader(""), &out, &problems))
	require.Contains(t, problems.String(), "given up after 20ms, see --timeout")
	require.NotContains(t, problems.String(), "hidden")
}
