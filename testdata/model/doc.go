// Package model checks the dispatcher against a model: random sequences of
// operations, each checked after every step against what was promised. rapid
// finds and shrinks the sequences; testing/synctest owns the clock.
//
// A sequence is data, a list of [operation]s: publish, begin and end
// transactions, let some calls of a replica through, crash it, let time pass.
// Replicas are dispatchers of one name over stores with a [gate] before each
// call, so that the sequence, not the scheduler, decides what happens in which
// order: a replica stands still wherever no call of it is let through, for as
// long as the sequence likes. The same sequence therefore does the same again.
//
// The backends are memory, an outbox in memory that stamps rows before they are
// committed, as servers do, and SQLite.
//
// Each sequence ends with the question whether anything is idle: with no fault left,
// whoever polls has to deliver all there is within a bounded time of the bubble. Then
// a new replica settles the rest.
//
// By default the package takes half a minute with the race detector; `make fuzz` runs
// many more sequences. `-rapid.checks=10000` (or RAPID_CHECKS=10000) runs as many sequences on each
// backend, and a part of them on SQLite; `-rapid.seed` repeats one run. What
// fails is printed as Go, to be kept among the sequences that were once found.
// Time stands still while something runs: what spins ends with the timeout of
// the test, and shows in its goroutines.
package model
