// Package iam holds the tests of the worked example: suspending a user
// publishes iam.v1.UserSuspended in the same transaction, and a handler revokes
// the user's API keys in a transaction of its own.
//
// The example is hexagonal. Package domain knows neither the outbox nor a
// database, package app has the use cases, and memory, gormiam, sqliam, pgxiam and
// entiam are the wirings. The command in the directory demo runs it at a size
// worth watching.
package iam
