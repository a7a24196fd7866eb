package sqlstore

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/onward-go/outbox/persistence"
)

// RefuseEnd returns why a statement of the user's must not run, or nil: one that ends
// the transaction, which Atomically does.
func (d *Dialect) RefuseEnd(query string) error {
	if !d.EndsByStatement(query) {
		return nil
	}
	return fmt.Errorf("%.100q: %w: it would end the transaction, which Atomically does, or whoever opened it", query, persistence.ErrInTransaction)
}

// EndsByStatement reports whether a statement begins or ends a transaction as a
// whole, which inside of Atomically would leave what follows to autocommit. A
// rollback to a savepoint does not.
func (d *Dialect) EndsByStatement(query string) bool {
	switch first, _ := nextWord(query); strings.ToUpper(first) { // of most statements
	case "", "SELECT", "INSERT", "UPDATE", "DELETE", "WITH":
		return false
	}
	words := firstWords(query)
	switch words[0] {
	case "COMMIT", "END", "ABORT", "BEGIN":
		return true
	case "START":
		if second(words) == "TRANSACTION" {
			return true
		}
	case "PREPARE":
		return second(words) == "TRANSACTION"
	case "ROLLBACK":
		return !slices.Contains(words, "TO")
	}
	return d.commitsImplicitly != nil && d.commitsImplicitly(words)
}

// SetsTransaction reports whether a statement of PostgreSQL's may set the isolation level
// of its transaction, or make it READ ONLY or DEFERRABLE. What a function sets is not
// seen.
func SetsTransaction(query string) bool {
	first, rest := nextWord(query)
	return strings.EqualFold(first, "SET") && strings.Contains(strings.ToUpper(rest), "TRANSACTION")
}

// mysqlCommits reports statements that MySQL or MariaDB commits before it runs
// them, even if they fail then; and those that change what ends a transaction.
func mysqlCommits(words []string) bool {
	switch words[0] {
	case "ALTER", "BACKUP", "CACHE", "CHANGE", "CHECK", "CLONE", "FLUSH", "GRANT", "IMPORT", "INSTALL", "OPTIMIZE", "RENAME",
		"REPAIR", "RESET", "RESTART", "REVOKE", "SHUTDOWN", "START", "STOP", "TRUNCATE", "UNINSTALL":
		return true
	case "ANALYZE": // MariaDB's ANALYZE of a statement is another
		return slices.Contains(words, "TABLE") || slices.Contains(words, "TABLES")
	case "CREATE":
		return !temporary(words[1:])
	case "DROP":
		return second(words) != "PREPARE" && !temporary(words[1:])
	case "LOAD":
		return second(words) == "INDEX"
	case "LOCK":
		return second(words) != "INSTANCE"
	case "SET":
		return slices.Contains(words, "AUTOCOMMIT") || second(words) == "PASSWORD" || second(words) == "DEFAULT"
	}
	return false
}

// temporary reports whether CREATE or DROP is followed by a temporary table.
func temporary(words []string) bool {
	if len(words) > 2 && words[0] == "OR" && words[1] == "REPLACE" {
		words = words[2:]
	}
	return len(words) > 1 && words[0] == "TEMPORARY" && (words[1] == "TABLE" || words[1] == "TABLES")
}

// locking finds what a SELECT says when it locks rows.
var locking = regexp.MustCompile(`(?i)\b(UPDATE|SHARE)\b`)

// mysqlMayHaveEnded reports whether the transaction may be gone after a
// statement that returned no error. The error of a query arrives with its rows,
// which its caller reads; of queries only those that lock meet a deadlock. What
// a procedure or a second statement in the text does is not seen at all.
func mysqlMayHaveEnded(query string, rows bool) bool {
	switch first, _ := nextWord(query); strings.ToUpper(first) {
	case "":
		return false
	case "CALL", "EXECUTE":
		return true
	case "SELECT", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC":
		rows = rows && locking.MatchString(query)
	}
	return rows || strings.Contains(strings.TrimRight(query, "; \t\r\n"), ";")
}

func second(words []string) string {
	if len(words) < 2 {
		return ""
	}
	return words[1]
}

// firstWords returns the words at the beginning of a statement, in upper case.
func firstWords(query string) []string {
	const most = 12
	var words []string
	for len(words) < most {
		word, rest := nextWord(query)
		if word == "" {
			break
		}
		words = append(words, strings.ToUpper(word))
		query = rest
	}
	return words
}

// nextWord returns the first word of a text and what follows it, without comments,
// signs and quoted text. MySQL runs what is in comments that begin with an
// exclamation mark, so their words count everywhere.
func nextWord(query string) (word, rest string) {
	for len(query) > 0 {
		n := wordLength(query)
		switch {
		case n > 0:
			return query[:n], query[n:]
		case strings.HasPrefix(query, "/*!"), strings.HasPrefix(query, "/*M!"):
			n = strings.IndexByte(query, '!') + 1
			n += len(query[n:]) - len(strings.TrimLeft(query[n:], "0123456789"))
		case strings.HasPrefix(query, "/*"):
			n = commentLength(query)
		case strings.HasPrefix(query, "--"), query[0] == '#':
			n = lengthTo(query, 1, "\n")
		case query[0] == '\'' || query[0] == '"' || query[0] == '`':
			n = lengthTo(query, 1, query[:1])
		default:
			n = 1
		}
		query = query[n:]
	}
	return "", ""
}

func wordLength(s string) int {
	for i, c := range []byte(s) {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return i
		}
	}
	return len(s)
}

// commentLength is that of the comment that s begins with. PostgreSQL nests
// comments, others do not, so one that is not closed as a nested one ends at
// its first end.
func commentLength(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return lengthTo(s, 2, "*/")
}

// lengthTo returns the length of s up to and including end, which is looked for
// from a position on.
func lengthTo(s string, from int, end string) int {
	if i := strings.Index(s[from:], end); i >= 0 {
		return from + i + len(end)
	}
	return len(s)
}
