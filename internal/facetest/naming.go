package facetest

// Naming is where the tables of an outbox are.
type Naming struct{ Schema, Prefix string }

// Table returns the qualified name of a table.
func (n Naming) Table(name string) string {
	if n.Schema != "" {
		return n.Schema + "." + n.Prefix + name
	}
	return n.Prefix + name
}

// Quoted returns the qualified name of a table on PostgreSQL, or SQLite, quoted.
func (n Naming) Quoted(name string) string {
	if n.Schema != "" {
		return `"` + n.Schema + `"."` + n.Prefix + name + `"`
	}
	return `"` + n.Prefix + name + `"`
}
