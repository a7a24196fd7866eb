package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/onward-go/outbox/testdata/servers"
)

func TestCommand(t *testing.T) {
	// The shell sees the server, and its exit code comes back.
	script := `case $OUTBOX_TEST_POSTGRES_DSN in postgres*) exit 42;; esac; exit 1`
	var messages bytes.Buffer
	if code := run([]string{"-servers", "postgres", "--", "sh", "-c", script}, &messages); code != 42 {
		t.Errorf("exit code %d", code)
	}
	if !strings.HasPrefix(messages.String(), "server postgres ") || strings.Count(messages.String(), "\n") != 1 {
		t.Errorf("messages: %s", &messages)
	}
}

func TestSignalsReachCommand(t *testing.T) {
	for signal, want := range map[string]int{"INT": 3, "TERM": 4} {
		// $PPID is this process, which passes the signal back.
		script := `trap 'exit 3' INT; trap 'exit 4' TERM; kill -` + signal + ` $PPID
			for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.2; done; exit 1`
		var messages bytes.Buffer
		if code := run([]string{"-servers", "", "--", "sh", "-c", script}, &messages); code != want {
			t.Errorf("SIG%s: exit code %d: %s", signal, code, &messages)
		}
	}
}

func TestExitCodes(t *testing.T) {
	var all []string
	for _, kind := range servers.Kinds() {
		all = append(all, kind.Name)
	}
	t.Setenv(servers.SkipVar, strings.Join(all, ","))
	for name, test := range map[string]struct {
		args []string
		want int
	}{
		"success":        {[]string{"--", "true"}, 0},
		"failure":        {[]string{"--", "false"}, 1},
		"signal":         {[]string{"--", "sh", "-c", "kill -KILL $$"}, 128 + 9},
		"no command":     {[]string{"-servers", "postgres"}, exitUsage},
		"unknown server": {[]string{"-servers", "oracle", "--", "true"}, exitUsage},
		"not found":      {[]string{"--", "onward-no-such-program"}, exitNotFound},
		"not a program":  {[]string{"--", os.TempDir()}, exitNoExec},
	} {
		t.Run(name, func(t *testing.T) {
			var messages bytes.Buffer
			if code := run(test.args, &messages); code != test.want {
				t.Errorf("exit code %d, want %d: %s", code, test.want, &messages)
			}
		})
	}
}
