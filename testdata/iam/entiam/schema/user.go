package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"

	"github.com/onward-go/outbox/testdata/iam/domain"
)

// User is a row of the table users.
type User struct{ ent.Schema }

// Annotations implements ent.Interface.
func (User) Annotations() []entschema.Annotation {
	return []entschema.Annotation{entsql.Table("users")}
}

// Fields implements ent.Interface.
func (User) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").MaxLen(64),
		field.String("status").GoType(domain.Status("")).MaxLen(16),
	}
}
