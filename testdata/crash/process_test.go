package crash

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is a replica's, as its parent sees it.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended

	mu       sync.Mutex
	messages []message
}

// start starts a replica, which is killed at the end of the test. What it says is
// passed on to heard, too.
func start(t *testing.T, r replica, heard ...func(*process, message)) *process {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(executable), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), replicaVar+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		p.listen(stdout, heard)
		_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) listen(stdout io.Reader, heard []func(*process, message)) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			continue // the last line of one that was killed
		}
		p.mu.Lock()
		p.messages = append(p.messages, m)
		p.mu.Unlock()
		for _, pass := range heard {
			pass(p, m)
		}
	}
}

// said returns what the process has said under a word.
func (p *process) said(word string) (texts []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.messages {
		if m.Word == word {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// hear waits until the process has said a word with a text that contains part.
func (p *process) hear(word, part string) {
	p.t.Helper()
	eventually(p.t, "the replica says "+word+" "+part, func() (bool, error) {
		texts := p.said(word)
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, part) }), nil
	})
}

// tell says a word to the process, which hears it as soon as it runs.
func (p *process) tell(word string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.stdin, word)
	require.NoError(p.t, err)
}

// pause stops the process where it is, and returns when it stands still.
func (p *process) pause() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	require.NoError(p.t, err)
	require.True(p.t, status.Stopped(), "%v", status)
}

func (p *process) resume() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// kill ends the process at once, wherever it is.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}
