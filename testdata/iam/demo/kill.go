package main

import "context"

// killInPass kills the dispatcher and starts another one, if it is in the
// middle of a pass: it has delivered something since the last look, and more is
// waiting. Once the producers have ended, any time will do.
//
// It reports whether the kill hit where it hurts most: events are delivered,
// and the saved cursor does not know of them. Otherwise the pass was over by
// then, and the next dispatcher is to be killed, too.
func (d *demo) killInPass(ctx context.Context, ending bool) (hit bool, err error) {
	n, err := d.db.count(ctx, counts.published, counts.delivered)
	if err != nil {
		return false, err
	}
	waiting, moving := n[0]-n[1], n[1] > d.delivered
	d.delivered = n[1]
	if waiting == 0 || !moving && !ending {
		return false, nil
	}
	pid := d.dispatcher.pid()
	if err := d.dispatcher.kill(ctx); err != nil {
		return false, err
	}
	n, err = d.db.count(ctx, counts.published, counts.delivered, counts.unsaved)
	if err != nil {
		return false, err
	}
	delivered, unsaved := n[1], n[2]
	waiting = n[0] - n[1]
	next, err := startProcess(d.db.place)
	if err != nil {
		return false, err
	}
	d.dispatcher = next
	d.killed = d.killed || waiting > 0
	d.screen.print("killed the dispatcher, process %d: delivered %d, of these not known to the cursor %d, waiting %d",
		pid, delivered, unsaved, waiting)
	d.screen.print("started the dispatcher again, process %d", next.pid())
	return d.killed && (unsaved > 0 || ending), nil
}
