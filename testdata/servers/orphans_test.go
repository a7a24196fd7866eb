package servers

import (
	"errors"
	"os"
	"runtime"
	"testing"
)

func TestRemoveOrphans(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells an owner that is gone")
	}
	s, err := startContainer(t.Context(), Postgres)
	if errors.Is(err, errUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop(t.Context()) }()
	b := s.backend.(*containerized)

	removeOrphans(t.Context(), b.client)
	if _, err := b.container.State(t.Context()); err != nil {
		t.Fatalf("a container in use was removed: %v", err)
	}
	// The system does this when the owner dies.
	if err := b.owner.Close(); err != nil {
		t.Fatal(err)
	}
	removeOrphans(t.Context(), b.client)
	if state, err := b.container.State(t.Context()); err == nil {
		t.Errorf("the orphan is left: %s", state.Status)
	}
	if _, err := os.Stat(b.owner.Name()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", b.owner.Name(), err)
	}
}
