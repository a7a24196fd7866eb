package cdc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/gormtx"
)

// retire drops the partition of the past.
func retire(t *testing.T, db database) {
	report, err := gormtx.RunRetention(t.Context(), db.DB, 30*24*time.Hour)
	require.NoError(t, err)
	require.Len(t, report.Dropped, 1)
	require.Equal(t, time.Date(2020, 2, 1, 0, 0, 0, 0, time.UTC), report.Dropped[0].To)
}
