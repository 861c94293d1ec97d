package cli

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry/tensorboard"
)

func (a *app) newTensorBoard() *cobra.Command {
	var to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tensorboard RUN",
		Short: "Export a run's metrics to TensorBoard",
		Long: `Export a run's metrics.jsonl to an event file for TensorBoard: metrics under train/, val/,
speed/ and memory/, and samples and config as texts. The run may be in progress; with
telemetry.tensorboard = true it writes the event file itself. The target folder must not
contain event files yet.

TensorBoard stores values as float32. metrics.jsonl has no times, so times are estimated:
the last step ended when the file last changed, and earlier steps by their durations.

See also: engine ui, engine report.`,
		Example: `  engine tensorboard runs/run
  engine tensorboard runs/run --to /tmp/boards/run
  tensorboard --logdir runs`,
		Args: takes("RUN"),
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			e, err := tensorboard.Export(args[0], to)
			switch {
			case errors.Is(err, fs.ErrNotExist) && !exists(args[0]):
				return usagef("%w", folder.Missing(err, "RUN", "folder", args[0]))
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
			a.printf("wrote %s: %s, up to step %d\n", words.OneLine(e.Path), words.Plural(e.Records, "record"), e.Last)
			return nil
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "`folder` for the event file, created if it does not exist (default: RUN/tensorboard)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	must(cmd.MarkFlagDirname("to"))
	return cmd
}
