//go:build man

package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/troupe-ml/troupe"
)

func init() { hidden = append(hidden, (*app).newMan) }

// newMan writes manual pages, for whoever makes a package of engine. What it takes to
// write them is not in the binary: only a build with the tag has the command.
func (a *app) newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages into a folder",
		Hidden: true,
		Args:   takes("DIR"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if err := writeMan(cmd.Root(), args[0]); err != nil {
				return &troupe.SetupError{Err: fmt.Errorf("manual pages: %w", err)}
			}
			return nil
		}),
	}
}

// writeMan makes the folder, and a page for each command in it.
func writeMan(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// A topic has no page of its own.
	root.Long += "\n\n" + exitCodes().Long
	root.DisableAutoGenTag = true
	// The same commands give the same pages: they bear no date but that of the epoch.
	epoch := time.Unix(0, 0).UTC()
	return doc.GenManTree(root, &doc.GenManHeader{Title: "ENGINE", Section: "1", Date: &epoch, Source: "engine " + describeBuild().Version,
		Manual: "Troupe"}, dir)
}
