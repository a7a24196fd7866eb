// Package outboxtest is the conformance suite of the contracts in package
// persistence. Any backend proves itself with it, the library's or a user's:
//
//	func TestConformance(t *testing.T) {
//		outboxtest.Run(t, func(t testing.TB) outboxtest.Backend { ... })
//	}
//
// The suite is a table of rules; the name of a failing subtest is the rule
// that the backend breaks. A rule that cannot apply to a backend, since it has
// one writer or one connection or lacks a hook, is skipped with that reason.
//
// Package eventstest is for those who publish and handle events.
package outboxtest
