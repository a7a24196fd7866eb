// Package crash is about processes that end, or stand still, in the middle of
// their work. Its tests run replicas of one dispatcher as processes of the
// operating system, and kill and pause them, and the database server, too.
//
// What the replicas' handler has done is in a table of effects, with a number
// that rises in the order of the deliveries. In the end it is compared with what
// has been committed to the outbox: nothing may be lost, applied twice or out of
// the order of its aggregate.
//
// The kills are a flag, for a longer run:
//
//	go test ./crash -run 'TestDispatchersThatAreKilled/postgres' -kills 200 -restarts 10 -timeout 1h -v
package crash
