package persistence_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func TestBucketAfterAPosition(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	for _, c := range []struct {
		position persistence.Cursor
		want     time.Time
	}{
		{persistence.Cursor{}, time.Time{}},
		{persistence.Cursor{CreatedTime: time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), ID: "a"}, time.Time{}},
		{persistence.Cursor{CreatedTime: noon}, noon},
		{persistence.Cursor{CreatedTime: noon, ID: "a"}, noon.Add(10 * time.Second)}, // a row of noon is before it
		{persistence.Cursor{CreatedTime: noon.Add(time.Microsecond)}, noon.Add(10 * time.Second)},
		{persistence.Cursor{CreatedTime: noon.Add(10*time.Second - time.Microsecond), ID: "a"}, noon.Add(10 * time.Second)},
		{persistence.Cursor{CreatedTime: last, ID: "a"}, last.Truncate(persistence.BucketWidth)},
	} {
		require.Equal(t, c.want, persistence.BucketAfter(c.position), c.position)
		require.Equal(t, c.want, persistence.BucketStart(c.want))
	}
}
