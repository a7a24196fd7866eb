package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"

	"github.com/onward-go/outbox/testdata/iam/entiam/stamp"
)

// Outbox is a row of the outbox table. It is a view, so ent generates nothing
// that writes, and its migration leaves the table alone: publishers write it,
// and the outbox migrates it. The primary key is (created_time, id).
type Outbox struct{ ent.View }

// Annotations implements ent.Interface.
func (Outbox) Annotations() []entschema.Annotation {
	return []entschema.Annotation{entsql.Table("outbox")}
}

// Fields implements ent.Interface.
func (Outbox) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").SchemaType(text("varchar(64)")),
		field.String("account_id").SchemaType(text("varchar(255)")),
		field.String("aggregate_type").SchemaType(text("varchar(255)")),
		field.String("aggregate_id").SchemaType(text("varchar(255)")),
		field.String("event_type").SchemaType(text("varchar(255)")),
		field.Bytes("payload").SchemaType(map[string]string{
			dialect.Postgres: "bytea",
			dialect.MySQL:    "longblob",
			dialect.SQLite:   "blob",
		}),
		field.Time("created_time").GoType(stamp.Time{}).SchemaType(map[string]string{
			dialect.Postgres: "timestamptz",
			dialect.MySQL:    "datetime(6)",
			dialect.SQLite:   "integer",
		}),
	}
}

// text is the type of a column of text. Only MySQL bounds it by the type; the
// publisher does everywhere.
func text(mysql string) map[string]string {
	return map[string]string{dialect.Postgres: "text", dialect.MySQL: mysql, dialect.SQLite: "text"}
}
