// Package pgpipeline lets a transaction of PostgreSQL begin in the round trip of its
// first statement, and end in the one in which the next begins.
package pgpipeline
