package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended
}

// startProcess starts a child that dies with us as far as the system allows.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// To Linux, the parent of a process is the thread that started it.
		// This thread must live as long as the child, or the child is
		// signalled.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// How it ended is in cmd.ProcessState.
		_ = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// state says how the child ended. It may be called when done is closed.
func (p *process) state() *os.ProcessState { return p.cmd.ProcessState }

// stop asks the child to end and kills it if it does not.
func (p *process) stop(ctx context.Context, ask syscall.Signal, patience time.Duration) error {
	if err := p.cmd.Process.Signal(ask); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return errors.Join(fmt.Errorf("signal process %d: %w", p.cmd.Process.Pid, err), p.kill(ctx))
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return p.kill(ctx)
}

// kill ends the child and its descendants at once.
func (p *process) kill(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	others := freeze(p.cmd.Process.Pid)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.cmd.Process.Pid, err)
	}
	for _, pid := range others {
		// It may have ended on its own.
		_ = kill(pid)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("process %d does not end: %w", p.cmd.Process.Pid, ctx.Err())
	}
	for _, pid := range others {
		for alive(pid) {
			if err := pause(ctx, time.Millisecond); err != nil {
				return fmt.Errorf("process %d does not end: %w", pid, err)
			}
		}
	}
	return nil
}
