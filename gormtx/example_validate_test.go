package gormtx_test

import (
	"context"
	"fmt"

	"github.com/onward-go/outbox/gormtx"
	"github.com/onward-go/outbox/persistence"
)

func ExampleOutbox_validate() {
	ctx := context.Background()
	db, closeDB := exampleDB()
	defer closeDB()
	outbox := gormtx.New(db)

	found, err := outbox.Validate(ctx, persistence.RoleProducer, persistence.RoleDispatcher)
	for _, f := range found.Findings {
		fmt.Printf("%s: %s: %s\n", f.Severity, f.Problem, f.Remedy)
	}
	if err != nil {
		fmt.Println("not fit to run")
	}
	// Output:
	// error: table outbox is missing: apply the migrations first
	// not fit to run
}
