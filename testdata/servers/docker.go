package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

const (
	daemonTimeout = 10 * time.Second
	pullTimeout   = 60 * time.Second
)

// docker is a connection to the Docker daemon.
type docker struct {
	provider *testcontainers.DockerProvider
	host     string // where published ports are reached
	// sharesNetwork says that what listens on the host's loopback interface
	// listens on ours.
	sharesNetwork bool
}

// connectDocker connects once per process, since testcontainers reads its
// configuration once. An error wraps errUnavailable.
var connectDocker = sync.OnceValues(func() (*docker, error) {
	// The helper container that removes leftovers has an image that a machine
	// without a registry cannot pull; we remove what we start.
	setDefault("TESTCONTAINERS_RYUK_DISABLED", "true")
	if insideContainer() {
		// A daemon beside us publishes on our own loopback interface, not on
		// the gateway that testcontainers would guess.
		setDefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
	}

	type result struct {
		docker *docker
		err    error
	}
	// Finding the daemon takes no context, and one that hangs must not hang
	// us.
	results := make(chan result, 1)
	go func() {
		d, err := findDocker()
		results <- result{d, err}
	}()
	select {
	case r := <-results:
		if r.err != nil {
			return nil, fmt.Errorf("docker %w: %w", errUnavailable, r.err)
		}
		return r.docker, nil
	case <-time.After(daemonTimeout):
		return nil, fmt.Errorf("docker %w: the daemon does not answer", errUnavailable)
	}
})

func findDocker() (d *docker, err error) {
	// Malformed settings make testcontainers panic.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("testcontainers: %v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), daemonTimeout)
	defer cancel()
	// What went wrong is in the errors.
	log.SetDefault(log.NewNoopLogger())
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return nil, err
	}
	if err := provider.Health(ctx); err != nil {
		return nil, err
	}
	host, err := provider.DaemonHost(ctx)
	if err != nil {
		return nil, err
	}
	if host == "localhost" {
		host = "127.0.0.1" // what we publish on, see publish
	}
	info, err := provider.Client().Info(ctx, client.InfoOptions{})
	if err != nil {
		return nil, err
	}
	return &docker{provider: provider, host: host, sharesNetwork: sharesNetwork(host, info.Info)}, nil
}

// sharesNetwork reports whether a daemon's host network is that of this process. It
// is not if the daemon is another machine's, or runs in a virtual machine or a
// namespace of its own.
func sharesNetwork(host string, info system.Info) bool {
	ours, err := os.Hostname()
	return host == "127.0.0.1" && err == nil && info.Name == ours &&
		!slices.ContainsFunc(info.SecurityOptions, func(option string) bool { return strings.Contains(option, "rootless") })
}

// image returns an image for the kind, pulled or built if need be.
func (d *docker) image(ctx context.Context, kind *Kind) (string, error) {
	if image := os.Getenv(kind.ImageVar); image != "" {
		return image, d.ensure(ctx, image)
	}
	pulled := d.ensure(ctx, kind.Image)
	if pulled == nil {
		return kind.Image, nil
	}
	if d.has(ctx, kind.LocalImage) == nil {
		return kind.LocalImage, nil
	}
	if ctx.Err() != nil {
		return "", pulled
	}
	built := newBuilder(d.provider.Client(), kind).build(ctx)
	if built == nil {
		return kind.LocalImage, nil
	}
	if older := d.older(ctx, kind); older != "" {
		return older, nil
	}
	return "", errors.Join(pulled, built)
}

// older returns the newest other image that the script has built, or "".
func (d *docker) older(ctx context.Context, kind *Kind) string {
	if kind.pinned {
		return ""
	}
	name, _, _ := strings.Cut(kind.LocalImage, ":")
	list, err := d.provider.Client().ImageList(ctx, client.ImageListOptions{
		Filters: make(client.Filters).Add("reference", name),
	})
	if err != nil {
		return ""
	}
	var newest string
	var created int64
	for _, image := range list.Items {
		for _, tag := range image.RepoTags {
			if strings.HasPrefix(tag, name+":") && image.Created > created {
				newest, created = tag, image.Created
			}
		}
	}
	return newest
}

// ensure returns nil when the daemon has the image, or could pull it.
func (d *docker) ensure(ctx context.Context, image string) error {
	if d.has(ctx, image) == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	if err := d.provider.PullImage(ctx, image); err != nil {
		return fmt.Errorf("docker image %s %w: %w", image, errUnavailable, err)
	}
	// A pull that breaks off midway is not reported as an error.
	if err := d.has(ctx, image); err != nil {
		return fmt.Errorf("docker image %s %w after a pull: %w", image, errUnavailable, err)
	}
	return nil
}

func (d *docker) has(ctx context.Context, image string) error {
	_, err := d.provider.Client().ImageInspect(ctx, image)
	return err
}

func insideContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return true
		}
	}
	return false
}

// setDefault sets an environment variable that the user has not set.
func setDefault(name, value string) {
	if _, ok := os.LookupEnv(name); !ok {
		// It fails for malformed names only.
		_ = os.Setenv(name, value)
	}
}
