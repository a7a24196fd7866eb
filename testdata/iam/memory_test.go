package iam_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/memstore"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/testdata/iam/memory"
)

func openMemory(testing.TB) fixture {
	store := memstore.New()
	return fixture{
		ports:  memory.Wire(store),
		outbox: store,
		table: func(t testing.TB) (columns []string, rows []map[string]string) {
			t.Helper()
			records, err := store.ReadAfter(t.Context(), persistence.Cursor{}, 1000)
			require.NoError(t, err)
			for _, r := range records {
				rows = append(rows, map[string]string{
					"id":             r.ID,
					"account_id":     r.AccountID,
					"aggregate_type": r.AggregateType,
					"aggregate_id":   r.AggregateID,
					"event_type":     r.EventType,
					"payload":        string(r.Payload),
					"created_time":   r.CreatedTime.Format(time.RFC3339Nano),
				})
			}
			return sevenColumns, rows
		},
	}
}
