package main

import (
	"errors"
	"os"
	"runtime/pprof"
)

// startProfile writes a CPU profile, unless there is no name for it, until it is
// stopped.
func startProfile(name string) (stop func() error, err error) {
	nothing := func() error { return nil }
	if name == "" {
		return nothing, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nothing, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nothing, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
