package sqlpgx_test

import (
	"database/sql"
	"fmt"
	"log"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/onward-go/outbox/sqltx"
	"github.com/onward-go/outbox/sqltx/sqlpgx"
)

func Example() {
	db, err := sql.Open("pgx", "postgres://localhost/iam") // it does not connect yet
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	outbox := sqltx.New(db, sqltx.Postgres, sqlpgx.Pipelined())

	fmt.Printf("%T\n", outbox)
	// Output: *sqltx.Outbox
}
