// Outboxctl answers what an operator asks of an outbox, and does what he decides.
// See docs/outboxctl.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
