package servers

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestPostgresSettings(t *testing.T) {
	server := Get(t, Postgres)
	if server.Origin == FromEnvironment {
		t.Skip("the settings of a server from the environment are its owner's")
	}
	for name, want := range map[string]string{
		"max_connections": "300", "max_prepared_transactions": "64",
		"wal_level": "logical", "server_encoding": "UTF8",
	} {
		if got := query[string](t, server.DSN, "SHOW "+name); got != want {
			t.Errorf("%s = %s, want %s", name, got, want)
		}
	}
}

func TestPostgresWithDatabase(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u:p@h:1/old?sslmode=disable":   "postgres://u:p@h:1/new?sslmode=disable",
		"postgresql://h/?dbname=old&x=1":           "postgresql://h/new?x=1",
		"host=h dbname=old user=u sslmode=disable": "host=h dbname=old user=u sslmode=disable dbname=new",
	} {
		got, err := postgres{}.withDatabase(dsn, "new")
		if err != nil || got != want {
			t.Errorf("withDatabase(%q) = %q, %v, want %q", dsn, got, err, want)
		}
		config, err := pgx.ParseConfig(got)
		if err != nil || config.Database != "new" {
			t.Errorf("%q leads to %v, %v", got, config, err)
		}
	}
}

func TestPostgresOfOneVersion(t *testing.T) {
	dsn := Get(t, Postgres15).DSN
	if version, err := (postgres{major: "14"}).probe(t.Context(), dsn); err == nil {
		t.Errorf("%s passes for 14", version)
	}
	// In the directory of another version, and in PATH, are other programs.
	if dir, err := (postgres{major: "1"}).findPrograms(); err == nil {
		t.Errorf("found version 1 in %s", dir)
	}
}
