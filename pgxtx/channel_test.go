package pgxtx

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachOutboxHasAChannel(t *testing.T) {
	long := strings.Repeat("s", 63)
	names := map[string]bool{}
	for _, table := range []string{"outbox", "iam_outbox", "app.iam_outbox", "app_iam.outbox", long + ".outbox", long + ".x_outbox"} {
		name := channel(table)
		require.LessOrEqual(t, len(name), maxChannel, name)
		require.False(t, names[name], name)
		names[name] = true
	}
	require.Contains(t, names, "wake:app.iam_outbox")
}
