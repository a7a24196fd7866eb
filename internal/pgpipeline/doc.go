// Package pgpipeline lets a transaction of PostgreSQL end in the round trip in
// which the next one begins.
package pgpipeline
