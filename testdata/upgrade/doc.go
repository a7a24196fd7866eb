// Package upgrade runs the library of the release before beside that of today, on the
// same tables, through an upgrade and back.
//
// The program in replica is built twice: as it is, and against the release before, which
// comes from the history of the repository. So it uses nothing that only one of them has.
package upgrade
