package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	scratchPrefix = "onward-server-"
	lockName      = "lock"
)

// scratch is the temporary directory of a local server. Its lock file is held
// by us and by the server's processes, so that a directory whose users were
// all killed can be told from one in use.
type scratch struct {
	path string
	lock *os.File
}

// newScratch creates a directory, in memory if there is room, that belongs to
// the account. It also removes the directories of servers that are no more.
func newScratch(name string, owner *account) (*scratch, error) {
	base := memoryDir()
	if base == "" {
		base = os.TempDir()
	}
	sweep(base)
	path, err := os.MkdirTemp(base, scratchPrefix+name+"-")
	if err != nil {
		return nil, fmt.Errorf("directory for %s: %w", name, err)
	}
	s := &scratch{path: path}
	if err := s.prepare(owner); err != nil {
		return nil, errors.Join(fmt.Errorf("directory for %s: %w", name, err), s.remove())
	}
	return s, nil
}

func (s *scratch) prepare(owner *account) error {
	// The file gets its name when it is locked: sweep must not see it earlier.
	fresh := filepath.Join(s.path, lockName+".new")
	lock, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s.lock = lock
	if _, err := tryLock(lock); err != nil {
		return err
	}
	if err := os.Rename(fresh, filepath.Join(s.path, lockName)); err != nil {
		return err
	}
	if owner != nil {
		return os.Chown(s.path, int(owner.uid), int(owner.gid))
	}
	return nil
}

// inherit returns the files that keep the directory in use.
func (s *scratch) inherit() []*os.File { return []*os.File{s.lock} }

func (s *scratch) remove() error {
	err := os.RemoveAll(s.path)
	if s.lock != nil {
		_ = s.lock.Close()
	}
	if err != nil {
		return fmt.Errorf("remove the server's directory: %w", err)
	}
	return nil
}

// sweep removes directories whose users have all ended without removing them.
// It is a courtesy; what cannot be removed stays.
func sweep(base string) {
	locks, _ := filepath.Glob(filepath.Join(base, scratchPrefix+"*", lockName))
	for _, path := range locks {
		lock, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, _ := tryLock(lock); free {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = lock.Close()
	}
}
