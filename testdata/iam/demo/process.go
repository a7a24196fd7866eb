package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// stopTimeout bounds how long a dispatcher may take to end.
const stopTimeout = 10 * time.Second

// process is a dispatcher in a process of its own.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // of the process, once it has ended
}

func startProcess(p place) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the dispatcher: %w", err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), placeVar+"="+p.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the dispatcher: %w", err)
	}
	proc := &process{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	go func() {
		proc.err = cmd.Wait()
		close(proc.ended)
	}()
	return proc, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process with SIGKILL, wherever it is. It returns an error if it
// was not running any more.
func (p *process) kill(ctx context.Context) error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the dispatcher: %w", err)
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.cmd.ProcessState.Exited() { // as opposed to: killed
		return p.died()
	}
	return nil
}

// died is the error of a process that has ended by itself.
func (p *process) died() error {
	return fmt.Errorf("the dispatcher has ended by itself: %v", p.cmd.ProcessState)
}

// stop lets the process finish what it is at.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return nil // whoever watched it knows
	default:
	}
	_ = p.stdin.Close() // it may die meanwhile
	select {
	case <-p.ended:
		return p.err
	case <-time.After(stopTimeout):
		return errors.Join(errors.New("the dispatcher does not end"), p.cmd.Process.Kill())
	}
}
