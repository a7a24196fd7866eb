package servers

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/client"
)

const (
	// cacheDir holds what is kept from one run to the next. It is root's, who
	// alone can build.
	cacheDir = "/var/cache/onward-test"
	// buildTimeout is for a build alone; it takes about a minute.
	buildTimeout = 5 * time.Minute
	// buildRetry is how long a failed build is not tried again, so that one
	// test run with many packages tries once.
	buildRetry = 10 * time.Minute
)

// images are the scripts, so that a compiled test or command needs no sources.
//
//go:embed images/*.sh
var images embed.FS

// builder builds the local image of a kind of server.
type builder struct {
	kind    *Kind
	client  client.APIClient
	scripts fs.FS
	dir     string        // for locks and logs
	timeout time.Duration // of a build
	root    bool          // whether we may
}

func newBuilder(c client.APIClient, kind *Kind) *builder {
	return &builder{kind: kind, client: c, scripts: images, dir: cacheDir, timeout: buildTimeout, root: os.Getuid() == 0}
}

// file returns the path of a file about this image.
func (b *builder) file(extension string) string {
	return filepath.Join(b.dir, b.kind.Name+extension)
}

// build builds the image unless somebody else is just doing it, or has failed
// a moment ago. All errors but that of ctx wrap errUnavailable.
func (b *builder) build(ctx context.Context) error {
	if len(b.kind.script) == 0 {
		return fmt.Errorf("docker image %s %w: nothing builds it", b.kind.LocalImage, errUnavailable)
	}
	if !b.root {
		return fmt.Errorf("docker image %s %w: run 'sudo images/%s' in testdata/servers",
			b.kind.LocalImage, errUnavailable, strings.Join(b.kind.script, " "))
	}
	err := b.locked(ctx, func() error {
		// The one that held the lock before may have built it.
		if _, err := b.client.ImageInspect(ctx, b.kind.LocalImage); err == nil {
			return nil
		}
		if failed, err := os.Stat(b.file(".failed")); err == nil && time.Since(failed.ModTime()) < buildRetry {
			return fmt.Errorf("the last build failed: %s, remove %s to try again", b.lastWords(), b.file(".failed"))
		}
		return b.attempt(ctx)
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("docker image %s from Debian's %s %w: %w",
		b.kind.LocalImage, b.kind.Package, errUnavailable, err)
}

// locked runs f while no other process builds this image.
func (b *builder) locked(ctx context.Context, f func() error) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	// The file stays: removing it would let two hold a lock of that name.
	lock, err := os.OpenFile(b.file(".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		free, err := tryLock(lock)
		if err != nil {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		if free {
			return f()
		}
		if err := pause(ctx, 4*probePause); err != nil {
			return fmt.Errorf("another build goes on: %w", err)
		}
	}
}

// attempt runs the script, and remembers that it failed.
func (b *builder) attempt(ctx context.Context) error {
	log := b.file(".log")
	fmt.Fprintf(os.Stderr, "servers: building the docker image %s, which takes a minute or two; see %s\n", b.kind.LocalImage, log)
	limited, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	err := b.run(limited)
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err()) // nobody waits for it any more
	}
	if err == nil {
		err = os.Remove(b.file(".failed"))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	mark := os.WriteFile(b.file(".failed"), []byte(err.Error()+"\n"), 0o644)
	return errors.Join(fmt.Errorf("the build failed: %w: %s, see %s", err, b.lastWords(), log), mark)
}

// run runs the script to its end, or ends it with ctx.
func (b *builder) run(ctx context.Context) error {
	scripts, err := os.MkdirTemp("", "onward-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scripts)
	if err := os.CopyFS(scripts, b.scripts); err != nil {
		return err
	}
	log, err := os.Create(b.file(".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("/bin/sh", b.kind.script...)
	cmd.Dir = filepath.Join(scripts, "images")
	cmd.Stdout, cmd.Stderr = log, log
	// Its docker command talks to the daemon that we have found.
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+b.client.DaemonHost(), "LC_ALL=C")
	cmd.SysProcAttr = childAttributes(nil, syscall.SIGTERM)
	p, err := startProcess(cmd)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return errors.Join(ctx.Err(), p.stop(patient, syscall.SIGTERM, stopTimeout/2))
	}
	if !p.state().Success() {
		return fmt.Errorf("%s: %s", b.kind.script[0], p.state())
	}
	return nil
}

// lastWords is the last line of the log, which says what went wrong.
func (b *builder) lastWords() string {
	out, err := os.ReadFile(b.file(".log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
