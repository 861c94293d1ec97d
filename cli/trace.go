package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

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
		Short: "Draw what happened in a step, beneath what was planned",
		Long: `Draw a step of a run that recorded some (run.trace_every), and beneath it what was
measured. The plan is the step's table played with the mean time that each type of
action took on each chunk; so what differs is waiting and chance.

The table of figures that follows (with ascii) predicts each type of action by its
chunks' floating-point operations at the mean rate of the whole step.

Of a run with replicas or tensor groups one rank of each stage is drawn: the first
replica's, and of a tensor group the first.`,
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
	cmd.Flags().IntVar(&step, "step", -1, "`number` of the step (default: the last one recorded)")
	d.flags(cmd.Flags(), traceFormats)
	return cmd
}

func (a *app) trace(run string, step int, d drawing) error {
	path := filepath.Join(run, rundir.TraceFile)
	t, _, err := telemetry.ReadTrace(path, step)
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%s is missing: a run records steps with --set run.trace_every=100", path)
	}
	if err != nil {
		return usagef("%w", err)
	}
	a.working = true
	m, err := measure(path, t)
	if err != nil {
		return err
	}
	planned, measured := m.charts()
	return d.write(a, func(w io.Writer) error {
		if err := drawCharts(w, a, d, planned, measured); err != nil || d.format != "ascii" {
			return err
		}
		return m.figures(w)
	})
}

// measurement is a traced step beside its plan.
type measurement struct {
	trace   telemetry.Trace
	table   *scheduler.Table
	planned *scheduler.Timeline
	actual  *scheduler.Timeline
	credits *scheduler.Credits
}

// measure checks a trace and plays its table.
func measure(path string, t telemetry.Trace) (*measurement, error) {
	bad := func(format string, args ...any) (*measurement, error) {
		return nil, fmt.Errorf("%s: step %d: %s", path, t.Step, fmt.Sprintf(format, args...))
	}
	skips := make([]scheduler.Skip, len(t.Skips))
	for i, s := range t.Skips {
		skips[i] = scheduler.Skip{From: s[0], To: s[1]}
	}
	table, err := scheduler.ReadCSV(fmt.Sprintf("%s, the table of step %d", path, t.Step), t.Table, skips...)
	if err != nil {
		return nil, err
	}
	table.Schedule = t.Schedule
	if len(t.MS) != table.NumRanks() || len(t.ChunkFLOPs) != table.NumChunks {
		return bad("times of %d ranks and operations of %d chunks for a table of %d and %d", len(t.MS), len(t.ChunkFLOPs), table.NumRanks(), table.NumChunks)
	}
	m := &measurement{trace: t, table: table, actual: &scheduler.Timeline{
		Start: make([][]float64, len(t.MS)), End: make([][]float64, len(t.MS)), Busy: make([]float64, len(t.MS)), Idle: make([]float64, len(t.MS))}}
	type key struct {
		chunk int32
		typ   scheduler.Type
	}
	sum, count := map[key]float64{}, map[key]float64{}
	for r, row := range table.Ranks {
		if len(t.MS[r]) != len(row) {
			return bad("%d times for the %d actions of rank %d", len(t.MS[r]), len(row), r)
		}
		tl := m.actual
		for i := 0; i < len(row); i++ {
			at := t.MS[r][i]
			took := at[1] - at[0]
			if !(took >= 0) {
				return bad("%v on rank %d ends before it starts", row[i], r)
			}
			n := scheduler.Width(row, i) // a pair has one time
			for j := range n {
				tl.Start[r], tl.End[r] = append(tl.Start[r], at[0]), append(tl.End[r], at[1])
				k := key{row[i+j].Chunk, row[i+j].Type}
				sum[k] += took * share(row, i+j)
				count[k]++
			}
			i += n - 1
			tl.Busy[r] += took
		}
	}
	if len(t.Clocks) != 0 && len(t.Clocks) != len(t.MS) {
		return bad("clocks of %d ranks for a table of %d", len(t.Clocks), len(t.MS))
	}
	m.actual.Summarise()
	report, err := scheduler.Check(table)
	if err != nil {
		return nil, fmt.Errorf("%s: step %d: %w", path, t.Step, err)
	}
	m.credits = &report.Credits
	m.planned, err = scheduler.Simulate(table, func(_ int, a scheduler.Action) float64 {
		k := key{a.Chunk, a.Type}
		return sum[k] / count[k]
	})
	return m, err
}

// share is an action's part of its time: a pair's actions have one time together, of
// which each is taken to take what it would at unit costs.
func share(row []scheduler.Action, i int) float64 {
	first := i
	if i > 0 && row[i-1].Overlap {
		first--
	}
	var all float64
	for _, a := range row[first : first+scheduler.Width(row, first)] {
		all += scheduler.UnitCosts(0, a)
	}
	return scheduler.UnitCosts(0, row[i]) / all
}

func (m *measurement) charts() (planned, measured draw.Chart) {
	planned, measured = draw.FromTimeline(m.table, m.planned), draw.FromTimeline(m.table, m.actual)
	planned.Title = fmt.Sprintf("planned: step %d, mean times", m.trace.Step)
	measured.Title = fmt.Sprintf("measured: step %d", m.trace.Step)
	planned.Unit, measured.Unit = draw.Milliseconds, draw.Milliseconds
	planned.Credits, measured.Credits = m.credits, m.credits
	// Where the times are too odd for causes, as clocks make them, the trace goes without.
	if gaps, err := scheduler.Idle(m.table, m.trace.MS, scheduler.IdleOptions{Credits: m.credits}); err == nil {
		for r, row := range gaps {
			for _, g := range row {
				measured.Lanes[r].Gaps = append(measured.Lanes[r].Gaps, draw.Gap{Start: g.Start, End: g.End, Cause: cause(g)})
			}
		}
	}
	told := make(map[string]bool)
	for r, c := range m.trace.Clocks {
		if c.Host == "" {
			continue
		}
		measured.Lanes[r].Name += " on " + c.Host
		measured.Lanes[r].Host = c.Host
		if !told[c.Host] { // several ranks may be in one process
			told[c.Host] = true
			measured.Facts = append(measured.Facts, draw.Fact{Label: "clock of " + c.Host, Value: clockFact(c)})
		}
	}
	return planned, measured
}

// cause says why a rank did nothing.
func cause(g scheduler.Gap) string {
	if g.From < 0 || g.Cause == scheduler.Between {
		return g.Cause.String()
	}
	return fmt.Sprintf("%v: %v of rank %d", g.Cause, g.Needs, g.From)
}

// clockFact says what a worker's times were corrected by.
func clockFact(c telemetry.Clock) string {
	switch {
	case c.UncertaintyMS == 0:
		return "not known yet: its times are as it told them"
	case c.OffsetMS < 0:
		return fmt.Sprintf("%.3f ms behind the coordinator's, ± %.3f ms, which is added to its times", -c.OffsetMS, c.UncertaintyMS)
	}
	return fmt.Sprintf("%.3f ms ahead of the coordinator's, ± %.3f ms, which is taken off its times", c.OffsetMS, c.UncertaintyMS)
}

// figures writes predicted against measured times.
func (m *measurement) figures(w io.Writer) error {
	var count, measured, flops [scheduler.B + 1]float64
	var allMS, allFLOPs float64
	for r, row := range m.table.Ranks {
		for i, a := range row {
			took := (m.trace.MS[r][i][1] - m.trace.MS[r][i][0]) * share(row, i)
			work := m.trace.ChunkFLOPs[a.Chunk] * scheduler.UnitCosts(r, a)
			count[a.Type]++
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
	fmt.Fprintf(tw, "step\t1\t%.4g\t%.4g\t%.2f\t\n", m.planned.Makespan, m.actual.Makespan, m.actual.Makespan/m.planned.Makespan)
	return tw.Flush()
}
