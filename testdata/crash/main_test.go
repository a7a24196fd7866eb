package crash

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) {
	if isReplica() {
		os.Exit(serve())
	}
	servers.Main(m)
}

// patience bounds each wait for something to happen; it is not to be reached.
const patience = time.Minute

// eventually waits until a fact is observed. The database may be down meanwhile.
func eventually(t *testing.T, what string, fact func() (bool, error)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		seen, err := fact()
		if err == nil && seen {
			return
		}
		require.True(t, time.Now().Before(deadline), "%s: not seen within %s (%v)", what, patience, err)
		time.Sleep(5 * time.Millisecond)
	}
}
