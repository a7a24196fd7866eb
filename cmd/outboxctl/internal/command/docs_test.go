package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The page of the documentation names every command, and every flag.
func TestEveryCommandIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "outboxctl.md"))
	require.NoError(t, err)
	page := string(text)
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			if !below.IsAvailableCommand() || below.Name() == "help" {
				continue
			}
			_, path, _ := strings.Cut(below.CommandPath(), " ")
			require.True(t, strings.Contains(page, "`"+path) || strings.Contains(page, "outboxctl "+path), "no word of %s", path)
			below.LocalFlags().VisitAll(func(f *pflag.Flag) {
				require.True(t, strings.Contains(page, "--"+f.Name), "no word of --%s of %s", f.Name, path)
			})
			walk(below)
		}
	}
	root := (&app{}).root()
	walk(root)
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { require.True(t, strings.Contains(page, "--"+f.Name), f.Name) })
}
