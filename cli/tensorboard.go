package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/rundir"
	"github.com/troupe-ml/troupe/internal/term"
	"github.com/troupe-ml/troupe/telemetry/tensorboard"
)

func (a *app) newTensorBoard() *cobra.Command {
	var to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tensorboard RUN",
		Short: "Write a run's figures as TensorBoard reads them",
		Long: `Write an event file of a run's metrics.jsonl, which TensorBoard reads: figures under
train/, val/, speed/ and memory/, and the configuration as a text. It may be done while
the run goes on; a run writes one by itself with telemetry.tensorboard = true. The
folder must have no event files yet.

TensorBoard keeps figures as float32. metrics.jsonl has no times: the last step is
taken to have ended when the file was changed last, and the others as much earlier
as steps took.`,
		Example: `  engine tensorboard runs/run
  engine tensorboard runs/run --to /tmp/boards/run
  tensorboard --logdir runs`,
		Args: takes("RUN"),
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			if to == "" {
				to = filepath.Join(args[0], tensorboard.Folder)
			}
			text, err := storedConfig(args[0])
			if err != nil {
				return err
			}
			e, err := tensorboard.Export(filepath.Join(args[0], rundir.MetricsFile), to, text)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return usagef("%w: give a run's folder", err)
			case errors.Is(err, tensorboard.ErrFolder), errors.Is(err, tensorboard.ErrNoRecords):
				return &troupe.SetupError{Err: err}
			case err != nil:
				return err
			}
			if asJSON {
				return a.json(e)
			}
			a.printf("%s: %s, up to step %d\n", term.OneLine(e.Path), term.Plural(e.Records, "record"), e.Last)
			return nil
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "`folder` for the event file; it is made where there is none (default: RUN/tensorboard)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	must(cmd.MarkFlagDirname("to"))
	return cmd
}

// storedConfig is the text of a run's configuration; "" where there is none.
func storedConfig(run string) (string, error) {
	info, err := os.Lstat(filepath.Join(run, rundir.ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > config.MaxFileBytes {
		return "", fmt.Errorf("%s is no configuration: it is no file, or has more than %d bytes", filepath.Join(run, rundir.ConfigFile), config.MaxFileBytes)
	}
	text, err := os.ReadFile(filepath.Join(run, rundir.ConfigFile))
	return string(text), err
}
