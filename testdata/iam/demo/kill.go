package main

import (
	"context"
)

// killInPass kills the dispatcher and starts another one if it is in the middle
// of a pass, where it hurts most: the effects of some events are committed, the
// cursor is not saved. Once the producers have ended, anywhere will do.
//
// It notes whether the kill hit a dispatcher with work left. One that had just
// done all there was does not count; the next one is killed instead.
func (d *demo) killInPass(ctx context.Context, ending bool) error {
	pass, err := d.db.pass(ctx)
	if err != nil {
		return err
	}
	if !pass.underway() && !(ending && pass.ahead > 0) {
		return nil
	}
	pid := d.dispatcher.pid()
	if err := d.dispatcher.kill(ctx); err != nil {
		return err
	}
	left, err := d.db.progress(ctx)
	if err != nil {
		return err
	}
	if pass, err = d.db.pass(ctx); err != nil {
		return err
	}
	d.killed = left.waiting() > 0
	next, err := startProcess(d.db.place)
	if err != nil {
		return err
	}
	d.dispatcher = next
	d.screen.print("killed the dispatcher, process %d: delivered %d, waiting %d, delivered beyond the saved cursor %d",
		pid, left.Delivered, left.waiting(), pass.delivered)
	d.screen.print("started the dispatcher again, process %d", next.pid())
	return nil
}
