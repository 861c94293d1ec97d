package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

var traceFormats = []string{"ascii", "svg", "html", "perfetto"}

func (a *app) newTrace() *cobra.Command {
	var d drawing
	step := -1
	cmd := &cobra.Command{
		Use:   "trace RUN [flags]",
		Short: "Draw a step of a run: planned and measured",
		Long: `Draw a recorded step of a run: first as planned, below as measured. Use it to see where
stages wait. A run records steps with run.trace_every = N in its config.

The plan is the schedule's table, simulated with the mean measured time of each type of
action on each chunk. So the two drawings differ only by waiting and by chance.

With --format ascii, a table follows. It compares each type of action with a prediction:
the floating-point operations of its chunks at the mean rate of the whole step.

If the run has replicas or tensor groups, it draws one rank of each stage: the first of
the first replica.

If ranks share experts (parallel.expert), it draws actions in parts and, below each rank,
the exchanges of tokens on its link, as engine plan --expert-layers does. The headline says
for what share of the exchanges the rank computed (hidden).

See also: engine ui (interactive), engine plan (predicts a schedule).`,
		Example: `  engine run config.toml --set run.trace_every=100
  engine trace runs/gpt
  engine trace runs/gpt --step 200 --format html --out step200.html
  engine trace runs/gpt --format perfetto --out step.pftrace`,
		Args: takes("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(cmd, traceFormats); err != nil {
				return err
			}
			return a.trace(args[0], step, d)
		},
	}
	cmd.Flags().IntVar(&step, "step", -1, "`number` of the step to draw (default: the last recorded step)")
	d.flags(cmd.Flags(), traceFormats)
	return cmd
}

func (a *app) trace(run string, number int, d drawing) error {
	path := filepath.Join(run, rundir.TraceFile)
	t, _, err := telemetry.ReadTrace(path, number)
	if errors.Is(err, fs.ErrNotExist) {
		if !exists(run) {
			return usagef("%w", folder.Missing(err, "RUN", "folder", run))
		}
		return usagef("%s: no such file; to record steps, run with --set run.trace_every=100", path)
	}
	if err != nil {
		return usagef("%w", err)
	}
	a.working = true
	step, err := t.Measured(path)
	if err != nil {
		return err
	}
	planned, measured, err := draw.FromStep(step)
	if err != nil {
		return fmt.Errorf("%s: step %d: %w", path, t.Step, err)
	}
	return d.write(a, func(w io.Writer) error {
		if err := drawCharts(w, a, d, planned, measured); err != nil || d.format != "ascii" {
			return err
		}
		return stepFigures(w, step, t.ChunkFLOPs, planned.Makespan)
	})
}

// stepFigures writes the table of predicted and measured times.
func stepFigures(w io.Writer, s *scheduler.Step, chunkFLOPs []float64, plannedMS float64) error {
	var count, measured, flops [scheduler.B + 1]float64
	var allMS, allFLOPs float64
	for r, row := range s.Table.Ranks {
		for i, a := range row {
			if a.Type.IsExchange() { // it computes nothing
				continue
			}
			took, work := s.Took(r, i), chunkFLOPs[a.Chunk]*scheduler.UnitCosts(r, a)*s.Table.Fraction(r, i)
			count[a.Type] += s.Table.Fraction(r, i)
			measured[a.Type] += took
			flops[a.Type] += work
			allMS += took
			allFLOPs += work
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\naction\tcount\tpredicted ms\tmeasured ms\tmeasured / predicted\t")
	for typ := scheduler.F; typ <= scheduler.B; typ++ {
		n := count[typ]
		if n == 0 || allFLOPs == 0 {
			continue
		}
		predicted := flops[typ] / allFLOPs * allMS
		fmt.Fprintf(tw, "%v\t%.0f\t%.3g\t%.3g\t%.2f\t\n", typ, n, predicted/n, measured[typ]/n, measured[typ]/predicted)
	}
	makespan := s.Timeline().Makespan
	fmt.Fprintf(tw, "step\t1\t%.4g\t%.4g\t%.2f\t\n", plannedMS, makespan, makespan/plannedMS)
	return tw.Flush()
}
