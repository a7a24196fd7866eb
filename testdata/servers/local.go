package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
)

// account is an unprivileged user of this machine.
type account struct{ uid, gid uint32 }

// local is a server that runs from programs on this machine. It implements
// backend.
type local struct {
	kind     *Kind
	programs string // their directory
	dir      *scratch
	port     int
	account  *account // nil: the user we are
	process  *process
}

// startLocal starts a new server from programs on this machine.
func startLocal(ctx context.Context, kind *Kind) (*Server, error) {
	programs, err := kind.engine.findPrograms()
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged(kind.accounts)
	if err != nil {
		return nil, err
	}
	dir, err := newScratch(kind.Name, owner)
	if err != nil {
		return nil, err
	}
	l := &local{kind: kind, programs: programs, dir: dir, account: owner}
	if err := kind.engine.initialise(ctx, l); err != nil {
		return nil, errors.Join(fmt.Errorf("initialise %s: %w", kind.Name, err), dir.remove())
	}
	if l.port, err = freePort(); err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	return launch(ctx, kind, FromLocal, kind.engine.localDSN(l.port), l)
}

// data is the data directory.
func (l *local) data() string { return filepath.Join(l.dir.path, "data") }

// log is the file that holds what the server prints.
func (l *local) log() string { return filepath.Join(l.dir.path, "server.log") }

// program returns the path of one of the server's programs.
func (l *local) program(name string) string { return filepath.Join(l.programs, name) }

// run runs one of the server's programs to its end.
func (l *local) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	l.prepare(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, tail(out))
	}
	return nil
}

// prepare gives a command its user, its directory and a small environment, in
// which no setting of the user's can reach the server.
func (l *local) prepare(cmd *exec.Cmd) {
	cmd.Dir = l.dir.path
	cmd.Env = []string{
		"PATH=" + l.programs + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + l.dir.path,
		"LC_ALL=C",
		"TZ=UTC",
	}
	// The directory counts as used while the lock is open in any process.
	cmd.ExtraFiles = l.dir.inherit()
	cmd.SysProcAttr = childAttributes(l.account, l.kind.deathSignal)
}

func (l *local) start(context.Context) error {
	program, args := l.kind.engine.command(l)
	log, err := os.OpenFile(l.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	l.prepare(cmd)
	l.process, err = startProcess(cmd)
	return err
}

func (l *local) check(context.Context) error {
	select {
	case <-l.process.done:
		out, _ := os.ReadFile(l.log())
		return fmt.Errorf("the server ended (%v), its log says:\n%s", l.process.state(), tail(out))
	default:
		return nil
	}
}

func (l *local) stop(ctx context.Context) error {
	return l.process.stop(ctx, l.kind.stopSignal, stopTimeout)
}

func (l *local) kill(ctx context.Context) error { return l.process.kill(ctx) }

func (l *local) remove(context.Context) error { return l.dir.remove() }

// unprivileged returns the account for a server when we are root, since
// servers refuse to run as root. Otherwise it returns nil.
func unprivileged(names []string) (*account, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &account{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("%w: the server refuses to run as root: create one of the users %s",
		errUnavailable, strings.Join(names, ", "))
}

// findPrograms returns the directory that holds all the named programs and is
// acceptable, which all are without accept: the one in PATH, or the first of
// dirs.
func findPrograms(accept func(dir string) bool, dirs []string, names ...string) (string, error) {
	if path, err := exec.LookPath(names[0]); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append([]string{filepath.Dir(path)}, dirs...)
		}
	}
next:
	for _, dir := range dirs {
		for _, name := range names {
			if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
				continue next
			}
		}
		if accept != nil && !accept(dir) {
			continue
		}
		return filepath.Abs(dir)
	}
	return "", fmt.Errorf("local programs %w: %s not found", errUnavailable, strings.Join(names, " and "))
}

// programVersion returns what a program says of its version, "" if it does not
// answer.
func programVersion(program string) string {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// tail returns the last lines of an output.
func tail(out []byte) string {
	const most = 30
	lines := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
