// Package servers gives tests real database servers.
//
// A server comes from the first of these that works:
//
//  1. the environment: the variable of its [Kind] holds a DSN;
//  2. a container, where a Docker daemon answers and the image is present,
//     can be pulled, or was built by a script in images, which root's tests
//     run themselves;
//  3. the server's programs on this machine, run as an unprivileged user, on a
//     free port of 127.0.0.1, in a directory that is removed afterwards.
//
// OUTBOX_TEST_ORIGIN=container or =local leaves one of the last two.
//
// A test package shares one server per kind:
//
//	func TestMain(m *testing.M) { servers.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		server := servers.Get(t, servers.Postgres)
//		dsn := servers.CreateDatabase(t, server)
//		// ...
//	}
//
// A test that crashes its server takes one of its own from [Private].
//
// A server that cannot be had fails the test. Only the user skips it, by name:
// OUTBOX_TEST_SKIP=postgres. The command in the directory with starts the
// servers once for all packages of a test run.
//
// These servers are for tests alone: durability is given up for speed (fsync is
// off, which a killed process survives and a power failure does not), and the
// passwords are no secrets. A new database has its server's default collation
// and character set, which on MariaDB is not UTF-8 everywhere.
package servers
