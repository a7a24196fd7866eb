package servers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/moby/moby/client"
)

// ownerLabel holds the path of a file that a container's owner keeps locked. So
// a container whose owner was killed, or ran into a test's time limit, can be
// told from one in use.
const ownerLabel = "onward.outbox.test.owner"

// newOwner creates and locks the file for the label.
func newOwner() (*os.File, error) {
	f, err := os.CreateTemp("", "onward-container-*.lock")
	if err != nil {
		return nil, fmt.Errorf("lock for a container: %w", err)
	}
	if _, err := tryLock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock for a container: %w", err), dropOwner(f))
	}
	return f, nil
}

// dropOwner removes the file.
func dropOwner(f *os.File) error {
	return errors.Join(os.Remove(f.Name()), f.Close())
}

// removeOrphans removes containers without an owner. It is a courtesy: what
// cannot be removed, or belongs to another machine, stays.
func removeOrphans(ctx context.Context, c client.APIClient) {
	list, err := c.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", ownerLabel),
	})
	if err != nil {
		return
	}
	for _, container := range list.Items {
		f, err := os.OpenFile(container.Labels[ownerLabel], os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, _ := tryLock(f); !free {
			_ = f.Close()
			continue
		}
		_, err = c.ContainerRemove(ctx, container.ID, client.ContainerRemoveOptions{
			RemoveVolumes: true, Force: true,
		})
		if err == nil {
			_ = dropOwner(f)
			continue
		}
		_ = f.Close()
	}
}
