package guide_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/onward-go/outbox/sqltx"
)

// What a job of retention does.
func Example_retention() {
	db, done := exampleDB()
	defer done()
	_ = sqltx.Migrate(context.Background(), db, sqltx.SQLite)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	report, err := sqltx.RunRetention(ctx, db, sqltx.SQLite, 90*24*time.Hour)
	for _, p := range report.Dropped {
		logger.Info("dropped", "table", p.Table, "partition", p.Name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // and exit with 1, so that the scheduler tells somebody
	}

	fmt.Println(len(report.Dropped), err)
	// Output: 0 <nil>
}
