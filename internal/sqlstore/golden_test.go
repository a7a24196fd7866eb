package sqlstore

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
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
			for i := range v.NumField() {
				text := strings.TrimSpace(v.Field(i).String())
				fmt.Fprintf(&got, "-- %s\n%s\n\n", v.Type().Field(i).Name, text)
				require.NotContains(t, text, "{")
				// Not every database needs all.
				if name := v.Type().Field(i).Name; name != "SampleClock" && name != "CheckServer" && !strings.HasSuffix(name, "Migrations") {
					require.NotEmpty(t, text, name)
				}
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

// Nothing but the insert writes to the outbox.
func TestTheOutboxIsWriteOnly(t *testing.T) {
	for _, d := range []*Dialect{Postgres, MySQL, SQLite} {
		v := reflect.ValueOf(d.statements.expand(schema.Naming{}))
		for i := range v.NumField() {
			text := strings.ReplaceAll(strings.Join(strings.Fields(v.Field(i).String()), " "), `"`, "") + " "
			for _, write := range []string{"UPDATE outbox ", "DELETE FROM outbox ", "INSERT INTO outbox "} {
				if strings.Contains(text, write) {
					require.Contains(t, []string{"AppendRecord", "AppendRecords"}, v.Type().Field(i).Name, text)
				}
			}
		}
	}
}
