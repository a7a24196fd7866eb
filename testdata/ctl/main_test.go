package ctl

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/onward-go/outbox/testdata/servers"
)

var update = flag.Bool("update", false, "write the golden files")

// program is the command under test: the binary that users get, without cgo.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "outboxctl")
	if err == nil {
		program = filepath.Join(dir, "outboxctl")
		err = build(program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build outboxctl:", err)
		os.Exit(1)
	}
	servers.Main(m)
	_ = os.RemoveAll(dir)
}

func build(path string) error {
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = filepath.Join("..", "..", "cmd", "outboxctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
