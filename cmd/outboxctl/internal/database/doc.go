// Package database opens the databases of outboxctl by their DSNs, and knows
// what in these must not be shown.
package database
