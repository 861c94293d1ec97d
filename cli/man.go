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

// newMan writes manual pages, for those who package engine. Only a build with the tag man has the
// command, so that the usual binary does not contain the generator.
func (a *app) newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages to a folder",
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

// writeMan creates the folder and writes a page for each command.
func writeMan(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Topics have no pages: they follow the description of engine.
	root.Long += "\n\n" + exitCodes().Long + "\n\n" + formats().Long
	root.DisableAutoGenTag = true
	// The date is the epoch, so that the same commands give the same pages.
	epoch := time.Unix(0, 0).UTC()
	return doc.GenManTree(root, &doc.GenManHeader{Title: "ENGINE", Section: "1", Date: &epoch, Source: "engine " + describeBuild().Version,
		Manual: "Troupe"}, dir)
}
