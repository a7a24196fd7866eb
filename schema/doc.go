// Package schema holds the DDL of the outbox tables: numbered SQL files, one
// folder a dialect, with the names of schema and tables left open.
//
// The faces apply it ([github.com/onward-go/outbox/gormtx.Migrate]). Users of
// goose, atlas or golang-migrate call [Render] and put the statements into
// migrations of their own; each migration records its number in the table
// outbox_schema, where the library looks for it.
//
// A migration is compatible unless its file says in the first line what it breaks: the
// release before works on, beside it and after it. The first one makes the tables.
//
// A file is never edited once it is released; a change is a new file.
package schema
