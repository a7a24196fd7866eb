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
	var breaking bool
	up := &cobra.Command{
		Use:   "up",
		Short: "Create or upgrade the tables",
		Long: `Create or upgrade the tables. Safe to run from several places at once, and again
after a failure. It refuses a migration that replicas of the release before cannot live
with, and says what would become of them; --breaking applies it.`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			a.breaking = breaking
			return a.writing(c.Context(), true, a.migrate)
		},
	}
	up.Flags().BoolVar(&breaking, "breaking", false, "apply also what the release before cannot live with")
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
	// Pending are the migrations that are not applied.
	Pending []string `json:"pending"`
	// Applied are those that this command has applied.
	Applied []string `json:"applied,omitempty"`
}

func (m migrationStatus) text(p *page) {
	p.row("tables", fmt.Sprintf("version %d", m.Version))
	p.row("outboxctl", fmt.Sprintf("version %d", m.Wanted))
	for _, name := range m.Pending {
		p.row("pending", name)
	}
	for _, name := range m.Applied {
		p.row("applied", name)
	}
	switch {
	case m.Version > m.Wanted:
		p.say("The tables are newer: use the outboxctl of the library that your services use.")
	case m.Version == 0:
		p.say("There are no tables: run `outboxctl migrate up`, or name those that there are by --prefix and --schema.")
	case len(m.Pending) > 0:
		p.say("Run `outboxctl migrate up` before the services that use this version of the library.")
	case len(m.Applied) > 0:
		p.say("Done.")
	default:
		p.say("Nothing to do.")
	}
}

func (m migrationStatus) upToDate() bool { return m.Version == m.Wanted && len(m.Pending) == 0 }

func lookAtMigrations(ctx context.Context, outbox connection) (status migrationStatus, err error) {
	status.Wanted, status.Pending = schema.Version, []string{}
	if status.Version, err = outbox.SchemaVersion(ctx); err != nil {
		return status, err
	}
	pending, err := outbox.PendingMigrations(ctx)
	for _, m := range pending {
		status.Pending = append(status.Pending, m.String())
	}
	return status, err
}

// migrate applies what is pending. Others may have done so meanwhile.
func (a *app) migrate(ctx context.Context, outbox connection) error {
	before, err := lookAtMigrations(ctx, outbox)
	if err != nil {
		return err
	}
	if err := outbox.Migrate(ctx); err != nil {
		return err
	}
	after, err := lookAtMigrations(ctx, outbox)
	if err != nil {
		return err
	}
	after.Applied = before.Pending
	return a.show(after)
}

func (a *app) migrationStatus(ctx context.Context, outbox connection) error {
	status, err := lookAtMigrations(ctx, outbox)
	if err != nil {
		return err
	}
	if err := a.show(status); err != nil {
		return err
	}
	if !status.upToDate() {
		return errFinding
	}
	return nil
}

type migrations []migration

type migration struct {
	Version    int      `json:"version"`
	Name       string   `json:"name"`
	Breaks     string   `json:"breaks,omitempty"`
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
			wanted = append(wanted, migration{m.Version, m.Name, m.Breaks, m.Statements})
		}
	}
	return a.show(wanted)
}
