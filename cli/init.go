package cli

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

func (a *app) newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a config file with every key explained",
		Long: `Write a config file with every key, its default and a comment. Start a new project with
it: set data.train to your files, then train with engine run. FILE is config.toml by
default; an existing file is not overwritten.

Most keys may stay as they are; keys that are commented out show their defaults.

See also: engine config check, engine run, engine help formats.`,
		Example: `  engine init
  engine init small.toml
  engine run small.toml --set 'data.train="books/*.txt"'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return takes("FILE")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			path := "config.toml"
			if len(args) > 0 {
				path = args[0]
			}
			if err := writeNew(path, config.Template()); err != nil {
				return err
			}
			a.printf("wrote %s: set data.train to your files, then train with engine run %s\n", path, path)
			return nil
		}),
	}
}

// writeNew writes a file. It fails if the file exists.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return folder.Missing(existing(err, "FILE", "file", path), "FILE", "folder", filepath.Dir(path))
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // a partial file is of no use
	}
	return nil
}
