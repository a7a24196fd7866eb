package schema_test

import (
	"fmt"
	"strings"

	"github.com/onward-go/outbox/schema"
)

// The migrations as statements, for a migration tool of your own.
func ExampleRender() {
	migrations, err := schema.Render(schema.Postgres, schema.Naming{Schema: "app", Prefix: "iam_"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range migrations {
		last := m.Statements[len(m.Statements)-1]
		fmt.Println(m.Version, m.Name, strings.Contains(last, `"app"."iam_outbox_schema"`))
	}
	// Output:
	// 1 outbox true
	// 2 audit_offsets true
}
