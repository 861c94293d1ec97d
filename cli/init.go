package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/config"
)

func (a *app) newInit() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a commented configuration to start from",
		Long: `Write a commented configuration to start from, with every key in it: by default
config.toml. A file that exists is left alone.`,
		Example: `  engine init
  engine init small.toml && engine config check small.toml`,
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
			a.printf("wrote %s: set data.train in it, then engine run %s\n", path, path)
			return nil
		}),
	}
}

// writeNew writes a file where there is none.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already; name another file", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // half a file is not one to start from
	}
	return nil
}
