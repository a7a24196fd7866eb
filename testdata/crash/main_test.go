package crash

import (
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/testdata/servers"
)

func TestMain(m *testing.M) {
	// Connections that are lost are what these tests are about.
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it is not nil
	if isReplica() {
		os.Exit(serve())
	}
	servers.Main(m)
}

// patience bounds each wait for something to happen; it is not to be reached.
const patience = 2 * time.Minute

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
