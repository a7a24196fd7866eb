package cdc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// retire drops the partition of the past.
func retire(t *testing.T, db database) {
	statements := []string{"ALTER TABLE outbox DROP PARTITION p2020_01"}
	if db.Name() == "postgres" {
		statements = []string{"ALTER TABLE outbox DETACH PARTITION outbox_p2020_01 CONCURRENTLY", "DROP TABLE outbox_p2020_01"}
	}
	for _, statement := range statements {
		require.NoError(t, db.Exec(statement).Error)
	}
}
