// Package ctl makes the situations that an operator asks about, on real servers,
// and looks at what outboxctl says of them. What it says is in testdata, which the
// documentation quotes.
package ctl
