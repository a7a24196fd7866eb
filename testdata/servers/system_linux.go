package servers

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// childAttributes puts a child into a process group of its own, so that the
// terminal's interrupt does not reach it, makes the kernel signal it when its
// parent dies, and gives it the account.
func childAttributes(a *account, death syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// tryLock takes an exclusive lock if nobody has it. The lock belongs to the
// open file, so a child that inherits the file holds it too.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

// memoryDir returns a directory in memory that has room for a server's data,
// or "".
func memoryDir() string {
	const (
		dir       = "/dev/shm"
		tmpfs     = 0x01021994
		roomBytes = 4 << 30
	)
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil || int64(st.Type) != tmpfs {
		return ""
	}
	if st.Bavail*uint64(st.Bsize) < roomBytes {
		return ""
	}
	return dir
}

// freeze halts a process, so that it starts no more children, and returns its
// descendants.
func freeze(pid int) []int {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			continue
		}
		if _, parent, ok := readStat(child); ok {
			children[parent] = append(children[parent], child)
		}
	}
	all := children[pid]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

func kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// alive reports whether a process still holds resources. One that only waits
// for its parent to notice does not.
func alive(pid int) bool {
	state, _, ok := readStat(pid)
	return ok && state != "Z" && state != "X"
}

// readStat returns the state and the parent of a process.
func readStat(pid int) (state string, parent int, ok bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0, false
	}
	// The program's name stands in parentheses and may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return string(fields[0]), parent, err == nil
}
