// Package eventstest helps to test code that publishes and handles events. It
// needs no database and no other module.
//
// [New] returns an outbox in memory, with a publisher and a dispatcher. A test
// publishes, drains and asserts:
//
//	outbox := eventstest.New(t)
//	suspended := outbox.Record("iam.v1.UserSuspended")
//
//	outbox.Publish(eventstest.Event("iam.v1.UserSuspended", eventstest.Aggregate("User", "u-1")))
//	outbox.Drain()
//	suspended.Want(t, events.Event{AggregateID: "u-1"})
//
// [Event] builds valid events, [Delivered] what a handler gets. A [Recorder]
// notes what has been handled, alone or around a handler of yours. [Drain] and
// [Published] work on any dispatcher and store, one on a real database, too.
//
// [Faults] wrap stores, so that chosen calls fail, block, or lose their answer.
//
// Package outboxtest is for those who write a store.
package eventstest
