package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/onward-go/outbox/testdata/large"
	"github.com/onward-go/outbox/testdata/servers"
)

// whyRuns is how often the question is asked.
const whyRuns = 21

// measureWhy prints how long outboxctl takes to tell what has become of an event in
// the middle of a large outbox, from its start to its end.
func measureWhy(ctx context.Context, f family, server *servers.Server, s settings) error {
	if s.rows == 0 || server.Name == servers.MariaDB.Name {
		return nil
	}
	dir, err := os.MkdirTemp("", "outboxctl")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "outboxctl")
	build := exec.CommandContext(ctx, "go", "build", "-C", "../../cmd/outboxctl", "-o", program, ".")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build outboxctl, from the folder of the benchmark: %w", err)
	}
	b, err := open(ctx, f, server.DSN, 1)
	if err != nil {
		return err
	}
	defer b.close()
	end := time.Now().UTC().Truncate(time.Millisecond)
	fill := func(statement string) error { return b.db.WithContext(ctx).Exec(statement).Error }
	if err := large.Fill(fill, server.Name, b.prefix, end, s.rows); err != nil {
		return err
	}
	delays := make([]time.Duration, whyRuns)
	for i := range delays {
		ask := exec.CommandContext(ctx, program, "why", large.ID(end, s.rows/2+i), "--prefix", b.prefix)
		ask.Env = append(os.Environ(), "OUTBOX_DSN="+b.dsn)
		began := time.Now()
		out, err := ask.CombinedOutput()
		delays[i] = time.Since(began)
		if !bytes.Contains(out, []byte("no-handler")) { // it is there, and nobody subscribes
			return fmt.Errorf("outboxctl: %w: %s", err, out)
		}
	}
	slices.Sort(delays)
	fmt.Printf("bench why outboxctl %s rows=%d p50=%s p99=%s\n", server.Name, s.rows,
		delays[len(delays)/2].Round(time.Millisecond), p99(delays).Round(time.Millisecond))
	return nil
}
