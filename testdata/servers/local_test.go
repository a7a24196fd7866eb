package servers

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// brokenSettings is a server that ends at once.
type brokenSettings struct{ postgres }

func (b brokenSettings) command(l *local) (string, []string) {
	program, args := b.postgres.command(l)
	return program, append(args, "-c", "no_such_setting=1")
}

func TestFailedStart(t *testing.T) {
	broken := *Postgres
	broken.engine = brokenSettings{}
	before := scratchDirs(t)
	s, err := startLocal(t.Context(), &broken)
	if errors.Is(err, errUnavailable) {
		t.Skip(err)
	}
	if err == nil {
		t.Fatalf("started %s", s)
	}
	if !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("the server's log is not in the error: %v", err)
	}
	for dir := range scratchDirs(t) {
		if !before[dir] {
			t.Errorf("%s is left", dir)
		}
	}
}

func TestCancelledStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := scratchDirs(t)
	if s, err := StartOwn(ctx, Postgres); err == nil {
		t.Fatalf("started %s", s)
	}
	for dir := range scratchDirs(t) {
		if !before[dir] {
			t.Errorf("%s is left", dir)
		}
	}
}

// scratchDirs returns the directories of all servers of this machine.
func scratchDirs(t *testing.T) map[string]bool {
	t.Helper()
	dirs := map[string]bool{}
	for _, base := range []string{os.TempDir(), memoryDir()} {
		found, err := filepath.Glob(filepath.Join(base, scratchPrefix+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range found {
			dirs[dir] = true
		}
	}
	return dirs
}

// orphanVar names, in a child, the kind of server to start.
const orphanVar = "ONWARD_TEST_ORPHAN"

// TestServerDiesWithParent kills a process that has started a server, as a
// test's time limit or the user would.
func TestServerDiesWithParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process that its parent died")
	}
	if name := os.Getenv(orphanVar); name != "" {
		parent(t, name)
	}
	for _, kind := range []*Kind{Postgres, MySQL, MariaDB} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			skip(t, kind)
			diesWithParent(t, kind)
		})
	}
}

func diesWithParent(t *testing.T, kind *Kind) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithParent$")
	cmd.Env = append(os.Environ(), orphanVar+"="+kind.Name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()

	var dir, dsn string
	for lines := bufio.NewScanner(out); dsn == "" && lines.Scan(); {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 3 && fields[0] == orphanVar:
			dir, dsn = fields[1], fields[2]
		case len(fields) > 0 && fields[0] == "PASS":
			t.Skip("no local server")
		}
	}
	if _, err := kind.engine.probe(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(probePause) {
		// The next start removes the directory, once the last process of the
		// server has ended.
		sweep(filepath.Dir(dir))
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server in %s outlives its parent", dir)
		}
	}
	if _, err := kind.engine.probe(t.Context(), dsn); err == nil {
		t.Error("the server still answers")
	}
}

// parent starts a server and waits to be killed.
func parent(t *testing.T, name string) {
	kind, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := startLocal(t.Context(), kind)
	if errors.Is(err, errUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString(strings.Join([]string{orphanVar, s.backend.(*local).dir.path, s.DSN}, " ") + "\n")
	select {}
}

func TestSweepSparesDirectoriesInUse(t *testing.T) {
	s, err := newScratch("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	sweep(filepath.Dir(s.path))
	if _, err := os.Stat(s.path); err != nil {
		t.Error(err)
	}
	if err := s.remove(); err != nil {
		t.Error(err)
	}
}
