package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/database"
	"github.com/onward-go/outbox/schema"
)

func (a *app) migrateCommand() *cobra.Command {
	up := &cobra.Command{
		Use:   "up",
		Short: "Create or upgrade the tables",
		Long: `Create or upgrade the tables. Safe to run from several places at once, and again
after a failure.`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.writing(c.Context(), true, func(ctx context.Context, outbox connection) error {
				if err := outbox.Migrate(ctx); err != nil {
					return err
				}
				return a.migrationStatus(ctx, outbox)
			})
		},
	}
	status := &cobra.Command{
		Use:   "status",
		Short: "Show the version of the tables; exit code 3 if it is another than this outboxctl's",
		Args:  arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.reading(c.Context(), a.migrationStatus)
		},
	}
	var from int
	printing := &cobra.Command{
		Use:   "print",
		Short: "Print the migrations as SQL, for a tool of your own; the database is not asked",
		Args:  arguments(0, 0),
		RunE:  func(c *cobra.Command, _ []string) error { return a.printMigrations(c, from) },
	}
	printing.Flags().IntVar(&from, "from", 0, "print those after this version")
	return parent("migrate", "Create or upgrade the tables", up, status, printing)
}

type migrationStatus struct {
	Version int `json:"version"`
	Wanted  int `json:"wanted_version"`
}

func (m migrationStatus) text(p *page) {
	p.row("tables", fmt.Sprintf("version %d", m.Version))
	p.row("outboxctl", fmt.Sprintf("version %d", m.Wanted))
	switch {
	case m.Version == m.Wanted:
		p.say("Nothing to do.")
	case m.Version == 0:
		p.say("There are no tables: run `outboxctl migrate up`, or name those that there are by --prefix and --schema.")
	case m.Version < m.Wanted:
		p.say("Run `outboxctl migrate up` before the services that use this version of the library.")
	default:
		p.say("The tables are newer: use the outboxctl of the library that your services use.")
	}
}

func (a *app) migrationStatus(ctx context.Context, outbox connection) error {
	version, err := outbox.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if err := a.show(migrationStatus{version, schema.Version}); err != nil {
		return err
	}
	if version != schema.Version {
		return errFinding
	}
	return nil
}

type migrations []migration

type migration struct {
	Version    int      `json:"version"`
	Name       string   `json:"name"`
	Statements []string `json:"statements"`
}

func (m migrations) text(p *page) {
	for _, migration := range m {
		p.raw(fmt.Sprintf("-- Migration %04d_%s\n\n", migration.Version, migration.Name))
		for _, statement := range migration.Statements {
			p.raw(strings.TrimSuffix(strings.TrimSpace(statement), ";") + ";\n\n")
		}
	}
}

func (a *app) printMigrations(c *cobra.Command, from int) error {
	dsn := a.source()
	if dsn == "" && a.dialect == "" {
		return usage(c, "say for which database: --dialect, or --dsn")
	}
	dialect, err := database.DialectOf(dsn, a.dialect)
	if err != nil {
		return err
	}
	all, err := schema.Render(string(dialect), schema.Naming{Schema: a.schema, Prefix: a.prefix})
	if err != nil {
		return err
	}
	wanted := migrations{}
	for _, m := range all {
		if m.Version > from {
			wanted = append(wanted, migration(m))
		}
	}
	return a.show(wanted)
}
