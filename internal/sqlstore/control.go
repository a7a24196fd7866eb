package sqlstore

import "strings"

// EndsByStatement reports whether a statement begins or ends a transaction as a
// whole, which inside of Atomically would leave what follows to autocommit. A
// rollback to a savepoint does not.
func EndsByStatement(query string) bool {
	words := strings.Fields(strings.ToUpper(strings.TrimLeft(firstBytes(query), " \t\r\n;")))
	if len(words) == 0 {
		return false
	}
	switch strings.TrimRight(words[0], ";") {
	case "COMMIT", "END", "ABORT", "BEGIN":
		return true
	case "START":
		return len(words) > 1 && strings.HasPrefix(words[1], "TRANSACTION")
	case "PREPARE":
		return len(words) > 1 && words[1] == "TRANSACTION"
	case "ROLLBACK":
		for _, word := range words[1:] {
			if word == "TO" {
				return false
			}
		}
		return true
	}
	return false
}

// firstBytes spares the rest of a long statement.
func firstBytes(query string) string { return query[:min(len(query), 80)] }
