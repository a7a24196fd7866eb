package matrix

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/onward-go/outbox/events"
	"github.com/onward-go/outbox/gormtx"
)

// sqlBlocks returns the blocks of SQL of a page, or of a section of one.
func sqlBlocks(t *testing.T, text string) []string {
	t.Helper()
	var blocks []string
	for _, block := range strings.Split(text, "\n```sql\n")[1:] {
		block, _, closed := strings.Cut(block, "\n```\n")
		require.True(t, closed)
		blocks = append(blocks, block)
	}
	return blocks
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	return string(text)
}

// The SQL that docs/operations.md gives to an operator finds who keeps a
// transaction open, and reads the tables.
func TestTheOperatorsSQLRuns(t *testing.T) {
	blocks := sqlBlocks(t, readPage(t, "operations.md"))
	require.Len(t, blocks, 4)
	for _, server := range Servers {
		t.Run(server.Name, func(t *testing.T) {
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			outbox := gormtx.New(db)
			require.NoError(t, outbox.Migrate(t.Context()))
			for _, s := range strings.Split(comment.ReplaceAllString(blocks[3], ""), ";") {
				if s = strings.TrimSpace(s); s != "" {
					require.NoError(t, db.Exec(s).Error, s)
				}
			}
			if server.Kind == nil {
				return
			}
			who, ask := blocks[1], "SELECT CONNECTION_ID()"
			switch {
			case server.Pgx:
				who, ask = blocks[0], "SELECT pg_backend_pid()"
			case server.Name == "mariadb":
				who = blocks[2]
			}
			require.NoError(t, outbox.Atomically(t.Context(), func(ctx context.Context) error {
				require.NoError(t, events.NewPublisher(outbox).Publish(ctx, newEvents(1)...))
				var pid int64
				require.NoError(t, gormtx.Tx(ctx).Raw(ask).Scan(&pid).Error)
				rows, err := allOf(db.Raw(strings.TrimSuffix(comment.ReplaceAllString(who, ""), ";")))
				require.NoError(t, err)
				found := false
				for _, row := range rows {
					found = found || number(row[0]) == pid
				}
				require.True(t, found, "%d is not among %v", pid, rows)
				return nil
			}))
		})
	}
}

func number(value any) int64 {
	switch n := value.(type) {
	case int64:
		return n
	case uint64:
		return int64(n)
	case int32:
		return int64(n)
	}
	return 0
}

// The publication of docs/guide/other-services.md is one that PostgreSQL makes.
func TestThePublicationOfTheGuideIsOne(t *testing.T) {
	blocks := sqlBlocks(t, readPage(t, "guide/other-services.md"))
	require.Len(t, blocks, 1)
	for _, server := range Servers {
		if !server.Pgx {
			continue
		}
		t.Run(server.Name, func(t *testing.T) {
			db := Open(t, server.Gorm(t), &gorm.Config{Logger: logger.Discard})
			require.NoError(t, gormtx.Migrate(t.Context(), db, gormtx.WithSchema("outbox")))
			require.NoError(t, db.Exec(blocks[0]).Error)
			var tables []string
			require.NoError(t, db.Raw("SELECT tablename FROM pg_publication_tables WHERE pubname = 'outbox'").Scan(&tables).Error)
			require.Equal(t, []string{"outbox"}, tables)
		})
	}
}
