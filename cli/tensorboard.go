package cli

import (
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/telemetry/tensorboard"
)

func (a *app) newTensorBoard() *cobra.Command {
	var to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tensorboard RUN",
		Short: "Write a run's figures as TensorBoard reads them",
		Long: `Write an event file of a run's metrics.jsonl, which TensorBoard reads: figures under
train/, val/, speed/ and memory/, the samples and the configuration as texts. It may be done while
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
			e, err := tensorboard.Export(args[0], to)
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
			a.printf("%s: %s, up to step %d\n", words.OneLine(e.Path), words.Plural(e.Records, "record"), e.Last)
			return nil
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "`folder` for the event file; it is made where there is none (default: RUN/tensorboard)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	must(cmd.MarkFlagDirname("to"))
	return cmd
}
