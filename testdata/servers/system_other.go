//go:build !linux

package servers

import (
	"os"
	"syscall"
)

// Elsewhere a server outlives a parent that was killed, and root is not
// supported.

func childAttributes(*account, syscall.Signal) *syscall.SysProcAttr { return nil }

// tryLock reports every directory as in use.
func tryLock(*os.File) (bool, error) { return false, nil }

func memoryDir() string { return "" }

func freeze(int) []int { return nil }

func kill(int) error { return nil }

func alive(int) bool { return false }
