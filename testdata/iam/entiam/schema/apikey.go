package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	entschema "entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// APIKey is a row of the table api_keys. It refers to its user by id: they are
// two aggregates, so there is no edge.
type APIKey struct{ ent.Schema }

// Annotations implements ent.Interface.
func (APIKey) Annotations() []entschema.Annotation {
	return []entschema.Annotation{entsql.Table("api_keys")}
}

// Fields implements ent.Interface.
func (APIKey) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").MaxLen(64),
		field.String("user_id").MaxLen(64),
		field.Bool("revoked"),
		field.Int("revocations"),
	}
}

// Indexes implements ent.Interface.
func (APIKey) Indexes() []ent.Index {
	return []ent.Index{index.Fields("user_id")}
}
