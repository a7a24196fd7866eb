package sqlstore

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/schema"
)

var update = flag.Bool("update", false, "write the golden files")

// The statements as the server gets them are in testdata, so that a change of
// any shows in review.
func TestGoldenStatements(t *testing.T) {
	for _, d := range []*Dialect{Postgres, MySQL, SQLite} {
		t.Run(d.Name, func(t *testing.T) {
			naming := schema.Naming{Prefix: "app_"}
			if d == Postgres {
				naming.Schema = "iam"
			}
			var got strings.Builder
			v := reflect.ValueOf(d.statements.expand(naming))
			for _, name := range statementNames() {
				text := strings.TrimSpace(v.FieldByName(name).String())
				require.NotContains(t, text, "{")
				if text == "" {
					// Not every database needs all.
					_, ofPartitions := reflect.TypeFor[partitionStatements]().FieldByName(name)
					optional := ofPartitions || slices.Contains([]string{"SampleClock", "ClockMoves", "ReleaseKeys", "TakenKeys", "ForgetEvents", "ForgetMarkers", "Producers", "Suspects", "LackedByRetention", "RecordMarkerDurably", "RecordMarkerInLife", "RecordMarkersDurably", "RecordMarkersInLife", "InsertMarker", "InsertMarkerAsynchronously", "SessionIdleLimit", "SessionReadCommitted", "ProbeFormat"}, name) ||
						strings.HasSuffix(name, "Migrations")
					require.True(t, optional, name)
					continue
				}
				fmt.Fprintf(&got, "-- %s\n%s\n\n", name, text)
			}
			path := filepath.Join("testdata", d.Name+".sql")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(path, []byte(got.String()), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), got.String(), "run the test with -update if the change is meant")
		})
	}
}

// Nothing but the insert writes to the outbox, and retention where there are no
// partitions.
func TestTheOutboxIsWriteOnly(t *testing.T) {
	for _, d := range []*Dialect{Postgres, MySQL, SQLite} {
		v := reflect.ValueOf(d.statements.expand(schema.Naming{}))
		for _, name := range statementNames() {
			text := strings.ReplaceAll(strings.Join(strings.Fields(v.FieldByName(name).String()), " "), `"`, "") + " "
			for _, write := range []string{"UPDATE outbox ", "DELETE FROM outbox ", "INSERT INTO outbox "} {
				if strings.Contains(text, write) {
					require.Contains(t, []string{"AppendRecord", "AppendRecords", "ForgetEvents"}, name, text)
				}
			}
			if d.partitions != nil {
				require.Empty(t, d.statements.ForgetEvents, "the partition is dropped")
			}
		}
	}
}
