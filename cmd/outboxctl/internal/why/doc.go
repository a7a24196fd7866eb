// Package why finds out what has become of an event, within a bounded number of
// rows read, however large the outbox is.
package why
