package servers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/moby/moby/client"
)

// fakeDaemon has an image when a file is there.
type fakeDaemon struct {
	client.APIClient
	image string
}

func (f fakeDaemon) ImageInspect(context.Context, string, ...client.ImageInspectOption) (client.ImageInspectResult, error) {
	_, err := os.Stat(f.image)
	return client.ImageInspectResult{}, err
}

func (fakeDaemon) DaemonHost() string { return "unix:///nowhere" }

// fakeBuilder runs a script that is told where the image goes, and counts its
// runs in a file.
func fakeBuilder(t *testing.T, script string) (b *builder, runs func() int) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux locks")
	}
	dir := t.TempDir()
	image, count := filepath.Join(dir, "image"), filepath.Join(dir, "count")
	b = &builder{
		kind: &Kind{
			Name: "fake", LocalImage: "onward-test-fake:1", Package: "fake-server",
			script: []string{"fake.sh", image, count},
		},
		client:  fakeDaemon{image: image},
		scripts: fstest.MapFS{"images/fake.sh": {Data: []byte("echo run >>$2\n" + script + "\n")}},
		dir:     filepath.Join(dir, "cache"),
		timeout: time.Minute,
		root:    true,
	}
	return b, func() int {
		out, _ := os.ReadFile(count)
		return strings.Count(string(out), "run")
	}
}

func TestBuildOnce(t *testing.T) {
	b, runs := fakeBuilder(t, `[ "$DOCKER_HOST" = unix:///nowhere ] && sleep 0.3 && touch $1`)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := b.build(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := runs(); n != 1 {
		t.Errorf("%d builds", n)
	}
}

func TestFailedBuild(t *testing.T) {
	b, runs := fakeBuilder(t, "echo nothing works; exit 3")
	for range 2 {
		err := b.build(t.Context())
		if !errors.Is(err, errUnavailable) {
			t.Fatalf("got %v", err)
		}
		for _, want := range []string{b.kind.LocalImage, b.kind.Package, "nothing works"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
	}
	if n := runs(); n != 1 {
		t.Errorf("%d attempts", n)
	}
	// Some time later it is tried again.
	past := time.Now().Add(-2 * buildRetry)
	if err := os.Chtimes(b.file(".failed"), past, past); err != nil {
		t.Fatal(err)
	}
	b.scripts = fstest.MapFS{"images/fake.sh": {Data: []byte("touch $1")}}
	if err := b.build(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(b.file(".failed")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the failure is remembered after a success: %v", err)
	}
}

func TestBuildHasLimits(t *testing.T) {
	for name, prepare := range map[string]func(*builder) context.Context{
		"time": func(b *builder) context.Context {
			b.timeout = 300 * time.Millisecond
			return t.Context()
		},
		"context": func(*builder) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(300*time.Millisecond, cancel)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			// As images/common.sh waits and cleans up.
			b, _ := fakeBuilder(t, `trap 'kill $child; touch $2.clean; exit 1' TERM; sleep 60 & child=$!; wait $child`)
			ctx := prepare(b)
			start := time.Now()
			err := b.build(ctx)
			if err == nil || time.Since(start) > 40*time.Second {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			if _, err := os.Stat(b.kind.script[2] + ".clean"); err != nil {
				t.Errorf("the script could not clean up: %v", err)
			}
			_, failed := os.Stat(b.file(".failed"))
			// Whoever is interrupted may try again.
			if remembered := failed == nil; remembered != (ctx.Err() == nil) {
				t.Errorf("the failure is remembered: %v", remembered)
			}
		})
	}
}

func TestBuildIsNotBegunInVain(t *testing.T) {
	b, runs := fakeBuilder(t, "touch $1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.build(ctx); !errors.Is(err, context.Canceled) || runs() != 0 {
		t.Errorf("%d builds, %v", runs(), err)
	}
}

func TestBuildIsForRoot(t *testing.T) {
	b, runs := fakeBuilder(t, "touch $1")
	b.root = false
	err := b.build(t.Context())
	if !errors.Is(err, errUnavailable) || !strings.Contains(err.Error(), "sudo images/fake.sh") || runs() != 0 {
		t.Errorf("got %v", err)
	}
}

func TestScriptsAreThere(t *testing.T) {
	for _, kind := range Kinds() {
		if _, err := images.Open("images/" + kind.script[0]); err != nil {
			t.Errorf("%s: %v", kind.Name, err)
		}
	}
}

// TestOlderImage wants a version that neither a registry nor a script has.
func TestOlderImage(t *testing.T) {
	d, err := connectDocker()
	if err != nil {
		t.Skip(err)
	}
	kind := *Postgres
	kind.ImageVar = "ONWARD_TEST_NO_IMAGE"
	kind.Image, kind.LocalImage, kind.script = "localhost:1/onward/none:0", "onward-test-postgres:none", nil
	older := d.older(t.Context(), &kind)
	image, err := d.image(t.Context(), &kind)
	switch {
	case older == "" && !errors.Is(err, errUnavailable):
		t.Errorf("without an older image: %s, %v", image, err)
	case older != "" && (image != older || !strings.HasPrefix(image, "onward-test-postgres:")):
		t.Errorf("got %s, %v, want %s", image, err, older)
	}
	kind.pinned = true
	if image, err := d.image(t.Context(), &kind); err == nil {
		t.Errorf("%s will do for one version", image)
	}
}
