package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// containerSpec is how a kind of server runs in its image.
type containerSpec struct {
	port string // inside, such as "5432/tcp"
	env  map[string]string
	cmd  []string
	// listen are further arguments, for a server that shares the host's network:
	// it listens on this port of the loopback interface.
	listen func(port int) []string
	// dsn returns the administrator's DSN.
	dsn func(host string, port int) string
}

// containerized is a server in a container. It implements backend.
//
// Its data lie in the volume that the image declares, and go with it. A tmpfs
// would be lost whenever the container ends, and with it the data that
// [Server.Restart] promises to keep.
type containerized struct {
	kind      *Kind
	container *testcontainers.DockerContainer
	client    client.APIClient
	owner     *os.File // see ownerLabel
}

// startContainer starts a new server in a container.
func startContainer(ctx context.Context, kind *Kind) (*Server, error) {
	d, err := connectDocker()
	if err != nil {
		return nil, err
	}
	image, err := d.image(ctx, kind)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	removeOrphans(ctx, d.provider.Client())
	owner, err := newOwner()
	if err != nil {
		return nil, err
	}
	spec := kind.engine.container()
	reach := d.reach(spec, port)
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithNoStart(),
		testcontainers.WithEnv(spec.env),
		testcontainers.WithCmd(append(spec.cmd, reach.args...)...),
		testcontainers.WithExposedPorts(reach.exposed...),
		testcontainers.WithLabels(map[string]string{ownerLabel: owner.Name()}),
		testcontainers.WithConfigModifier(func(c *container.Config) {
			c.StopSignal = strconv.Itoa(int(kind.stopSignal))
		}),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.NetworkMode, h.PortBindings = reach.mode, reach.bindings
			h.ShmSize = 256 << 20 // the default is too small for parallel queries
		}),
	)
	b := &containerized{kind: kind, container: c, client: d.provider.Client(), owner: owner}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("container of %s: %w", image, err), b.remove(ctx))
	}
	s, err := launch(ctx, kind, FromContainer, spec.dsn(d.host, port), b)
	if err != nil {
		return nil, fmt.Errorf("container of %s: %w", image, err)
	}
	return s, nil
}

// reach is how clients reach a container.
type reach struct {
	mode     container.NetworkMode
	exposed  []string
	bindings network.PortMap
	args     []string
}

// reach lets the server listen on the host itself, where the daemon's host is this
// one: Docker's proxy for published ports costs more than a small statement, and
// would be measured with it. Otherwise it publishes the port.
func (d *docker) reach(spec containerSpec, port int) reach {
	if d.sharesNetwork {
		return reach{mode: network.NetworkHost, args: spec.listen(port)}
	}
	return reach{exposed: []string{spec.port}, bindings: publish(spec.port, d.host, port)}
}

// publish binds the container's port to a fixed port of the host, which stays
// the same over restarts: on the loopback interface only, unless the daemon's
// host is another one.
func publish(inside, host string, port int) network.PortMap {
	binding := network.PortBinding{HostPort: strconv.Itoa(port)}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		binding.HostIP = ip
	}
	return network.PortMap{network.MustParsePort(inside): {binding}}
}

func (c *containerized) start(ctx context.Context) error { return c.container.Start(ctx) }

func (c *containerized) check(ctx context.Context) error {
	state, err := c.container.State(ctx)
	if err != nil {
		return fmt.Errorf("state of the container: %w", err)
	}
	if state.Running {
		return nil
	}
	return fmt.Errorf("the container ended with code %d, its log says:\n%s", state.ExitCode, c.logTail(ctx))
}

func (c *containerized) logTail(ctx context.Context) string {
	logs, err := c.container.Logs(ctx)
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	// What was read before an error is still worth showing.
	out, _ := io.ReadAll(logs)
	return tail(out)
}

func (c *containerized) stop(ctx context.Context) error {
	patience := stopTimeout
	return c.container.Stop(ctx, &patience)
}

func (c *containerized) kill(ctx context.Context) error {
	id := c.container.GetContainerID()
	if _, err := c.client.ContainerKill(ctx, id, client.ContainerKillOptions{}); err != nil {
		return err
	}
	// The daemon answers before the container's end has been recorded.
	for {
		state, err := c.container.State(ctx)
		if err != nil {
			return err
		}
		if !state.Running {
			return nil
		}
		if err := pause(ctx, probePause); err != nil {
			return fmt.Errorf("the container does not end: %w", err)
		}
	}
}

func (c *containerized) remove(ctx context.Context) error {
	err := testcontainers.TerminateContainer(c.container, testcontainers.StopContext(ctx))
	if err != nil {
		return err // the lock stays, for removeOrphans
	}
	return dropOwner(c.owner)
}
