// Package schema is what ent generates the package beside it from.
package schema
