package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onward-go/outbox/cmd/outboxctl/internal/database"
	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/schema"
)

// dsnVariable holds the DSN unless the flag does. A flag shows in the list of
// processes.
const dsnVariable = "OUTBOX_DSN"

// app is one call of outboxctl.
type app struct {
	in       io.Reader
	out      io.Writer
	dsn      string
	dialect  string
	prefix   string
	schema   string
	breaking bool
	json     bool
	timeout  time.Duration
	secrets  []string
	database io.Closer
}

// Run runs outboxctl with the arguments and returns its exit code.
func Run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if a.database != nil {
		err = errors.Join(err, a.database.Close())
	}
	if err != nil && !errors.Is(err, errFinding) {
		text := strings.TrimSpace(fmt.Sprint("outboxctl: ", err))
		if what := remedy(err); what != "" {
			text += "\n" + what
		}
		_, _ = fmt.Fprintln(errOut, database.Redact(text, append(a.secrets, a.mistaken(args)...)))
	}
	return exitCode(err)
}

// version is that of the module, and of the tables.
func version() string {
	module := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		module = info.Main.Version
	}
	return fmt.Sprintf("%s, for tables of version %d", module, schema.Version)
}

// mistaken returns what may be secret in arguments that look like DSNs, wherever
// they stand, and in the DSN, whether or not it came to be read.
func (a *app) mistaken(args []string) (secrets []string) {
	for _, arg := range append(args, a.source()) {
		if strings.Contains(arg, "@") || strings.Contains(arg, "password") {
			secrets = append(secrets, database.SecretsIn(arg)...)
		}
	}
	return secrets
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outboxctl",
		Short: "Look into an outbox, and steer it",
		Long: `Outboxctl tells what becomes of the events in an outbox, and does what an
operator decides. It works on PostgreSQL, MySQL, MariaDB and SQLite.

Exit codes: 0 done, and nothing is wrong; 1 it could not be done; 2 wrong usage;
3 done, and there is something to look at: an event that is not delivered, an
outbox that is not healthy, a migration that is due, events that retention keeps.`,
		Version:           version(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE:              needsCommand,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "the database: postgres://, mysql://, mariadb://, sqlite: or a driver's DSN (default $"+dsnVariable+", which does not show in the list of processes)")
	flags.StringVar(&a.dialect, "dialect", "", "postgres, mysql, mariadb or sqlite, where the DSN does not tell")
	flags.StringVar(&a.prefix, "prefix", "", "prefix of the tables' names")
	flags.StringVar(&a.schema, "schema", "", "PostgreSQL schema of the tables")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.DurationVar(&a.timeout, "timeout", 0, "give up after this time (default 30s where a command only reads, else never)")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(c, "%w", err) })
	root.AddCommand(a.statusCommand(), a.whyCommand(), a.eventsCommand(), a.deadCommand(), a.cursorCommand(), a.migrateCommand(), a.retentionCommand())
	return root
}

// usage is an error in how a command was called.
func usage(c *cobra.Command, format string, args ...any) error {
	return fmt.Errorf("%w: %w; see `%s --help`", errUsage, fmt.Errorf(format, args...), c.CommandPath())
}

// needsCommand refuses a command that only has others below it.
func needsCommand(c *cobra.Command, args []string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			names = append(names, sub.Name())
		}
	}
	if len(args) > 0 {
		return usage(c, "%s has no command %q; it needs a command: %s", c.CommandPath(), args[0], strings.Join(names, ", "))
	}
	return usage(c, "%s needs a command: %s", c.CommandPath(), strings.Join(names, ", "))
}

// arguments checks how many there are, from least to most, and says which.
func arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			_, names, _ := strings.Cut(c.Use, " ")
			if names == "" {
				names = "none"
			}
			return usage(c, "it takes %s, and was given %s", names, counted(persistence.Count{N: len(args)}, "argument", "arguments"))
		}
		return nil
	}
}

// parent is a command that only has others below it.
func parent(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: needsCommand, Args: cobra.ArbitraryArgs}
	c.AddCommand(below...)
	return c
}

// source returns the DSN.
func (a *app) source() string {
	if a.dsn != "" {
		return a.dsn
	}
	return os.Getenv(dsnVariable)
}
