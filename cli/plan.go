package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
)

// planOptions are the flags of `engine plan`.
type planOptions struct {
	spec     scheduler.Spec
	table    string // the file of a table, instead of a schedule
	costs    []float64
	link     float64
	cores    float64
	jitter   float64
	seed     uint64
	slow     string
	slowRank int // the rank in slow
	full     bool
	layers   int     // with experts in each chunk, at whose exchanges pairs are cut; 0: none
	exchange float64 // time of an exchange of tokens
	drawing
	config planConfigOptions
}

// planFormats lists the values of --format.
var planFormats = []string{"ascii", "csv", "comms", "json", "svg", "html", "perfetto"}

func (a *app) newPlan() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [CONFIG]",
		Short: "Recommend how to train a model; generate, check and draw schedules",
		Long: `With CONFIG: predict the time and the memory of a step, and recommend stages, layout,
schedule, microbatch and recomputation for your devices. Use it before a long run, or if a
model does not fit. It prints the [pipeline] section to use, and the reasons.

  Costs      It measures the model's layers on this machine, in at most half of the free
             memory; of larger layers it measures narrower ones and scales the result. It
             does not read data, and does not train except with --check. With --device it
             measures nothing: it estimates the costs for a GPU from shapes, the GPU's data
             sheet, and the efficiency measured on one GPU.
  --cluster  Print which worker would compute which stage, the measured links between the
             workers, and the predicted step time.
  --groups   Print every rank with its place in tensor, context, pipeline and data
             parallelism, and the ranks of its groups.
  --order    Print what each rank runs, in Megatron-Core's notation: its number of virtual
             microbatches (microbatches × chunks), how many forwards it runs in the
             warm-up, how many remain, and the order of its passes. 2 is a forward of the
             rank's second chunk, -2 a backward. With CONFIG it adds the shapes of the
             tensors that each rank receives and sends for a microbatch.

For families other than language models it measures nothing. It prints which rank gets
which layer, the memory that each rank needs, and the layers that compute input and weight
gradients together. It reads their data, to learn the fields of a sample.

Drawings show the configured schedule above the recommended one; csv is the recommended
table.

Without CONFIG: generate the table of a schedule, or read one with --table; check that it can
run without deadlock; simulate it with --costs, and draw it. If no flag describes a table,
CONFIG is config.toml, where the working directory has one.

  --costs    The costs of a forward (F), an input gradient (I) and a weight gradient (W) of
             one chunk, in any unit; a whole backward costs I + W. Times are printed in
             the same unit.
  peak       The most chunk outputs that a rank holds for their backward.
  --expert-layers
             Where ranks share experts (parallel.expert), a layer sends its tokens to their
             experts (FD in a forward, BD in a backward) and the results back (FC, BC). In an
             overlapped pair, one pass computes while the tokens of the other travel. The flag
             cuts each pair into those parts; --exchange is the time of one exchange. Drawings
             show the exchanges below their rank: what stands above one hides it.
  csv, comms The formats of PyTorch's schedules (compute_only and compute_comms); comms adds
             sends, receives and waits. --table reads both, with spaces, quotes or a byte
             order mark too.

See also: engine config check, engine trace (draws a measured step), engine run.`,
		Example: `  engine plan config.toml
  engine plan config.toml --devices 4 --memory-gib 16 --bandwidth-gbps 25 --latency-us 20
  engine plan config.toml --device h100 --set device.dtype=bfloat16
  engine plan config.toml --device h100 --devices 1024 --devices-per-node 8 --bandwidth-gbps 400 --latency-us 10
  engine plan config.toml --check
  engine plan config.toml --groups
  engine plan config.toml --cluster 10.0.0.1:7070
  engine plan config.toml --order
  engine plan --schedule interleaved --stages 2 --chunks 2 --microbatches 5 --microbatch-group-size 3 --order
  engine plan --schedule 1f1b --stages 4 --microbatches 8
  engine plan --schedule zb-v --stages 4 --chunks 2 --microbatches 8 --format svg --out zbv.svg
  engine plan --schedule auto --stages 4 --chunks 2 --microbatches 8 --max-in-flight 6 --costs 1,1.2,0.8
  engine plan --schedule dualpipev --stages 2 --microbatches 6 --expert-layers 1 --exchange 0.25
  engine plan --table mine.csv --format html --out mine.html`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return takes("CONFIG")(cmd, args)
		},
		ValidArgsFunction: completeFiles("toml"),
	}
	f := cmd.Flags()
	f.StringVar(&o.spec.Schedule, "schedule", "", "`name` of the schedule: "+strings.Join(scheduler.Schedules(), ", ")+
		" (default: none for one stage, interleaved for several chunks, else 1f1b)")
	f.IntVar(&o.spec.Ranks, "stages", 1, "`number` of stages in the pipeline, each on its own rank")
	f.IntVar(&o.spec.Chunks, "chunks", 0, "`number` of chunks on each rank (default: 1, or 2 if the schedule needs two)")
	f.IntVar(&o.spec.Microbatches, "microbatches", 1, "`number` of microbatches")
	f.IntVar(&o.spec.MicrobatchGroupSize, "microbatch-group-size", 0,
		"`number` of microbatches that run through one chunk before the next chunk starts (default: the smallest that fits; --stages if that divides the microbatches)")
	f.IntVar(&o.spec.MaxInFlight, "max-in-flight", 0,
		"with --schedule auto: most chunk outputs that a rank may hold, a `number` (default: no limit)")
	f.IntVar(&o.spec.DeferWeights, "defer-weights", 0,
		"defer the weight gradients of the last `N` microbatches on the last chunk to the end of the step")
	f.BoolVar(&o.spec.ForwardOnly, "forward-only", false, "run forward passes only, as in validation")
	f.StringVar(&o.table, "table", "", "`file` of a table, CSV with one row per rank and cells such as 0F3, instead of a schedule")
	f.Float64SliceVar(&o.costs, "costs", []float64{1, 1, 1}, "`costs` of F, I and W, in any unit")
	f.Float64Var(&o.link, "link", 0, "`time` of a message between two ranks, in the unit of --costs")
	f.IntVar(&o.layers, "expert-layers", 0,
		"cut overlapped pairs at the exchanges of tokens of `N` layers with experts in each chunk")
	f.Float64Var(&o.exchange, "exchange", 0, "`time` of an exchange of tokens, in the unit of --costs")
	f.Float64Var(&o.cores, "cores", 0,
		"`number` of actions that run at full speed at the same time, if ranks share a machine (default: every rank has its own)")
	f.Float64Var(&o.jitter, "jitter", 0, "`share` by which costs vary at random, up and down, from 0 to 1")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of --jitter")
	f.StringVar(&o.slow, "slow", "", "make a rank slower: `rank=factor`, such as 2=1.5")
	f.BoolVar(&o.full, "full", false, "with --format json: include the table, whatever its size")
	var ofTables []string
	f.VisitAll(func(flag *pflag.Flag) { ofTables = append(ofTables, flag.Name) })
	ofConfigs := o.config.flags(cmd)
	f.BoolVar(&o.config.order, "order", false,
		"print each rank's order of passes in Megatron-Core's notation; nothing is measured")
	o.flags(f, planFormats)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && exists(defaultConfig) && !anyChanged(cmd, ofTables) {
			say(a.err, "using %s", defaultConfig)
			args = []string{defaultConfig}
		}
		if len(args) == 0 {
			if err := unwanted(cmd, ofConfigs, "needs a config: engine plan CONFIG --%[1]s"); err != nil {
				return err
			}
			return a.plan(cmd, &o)
		}
		if err := unwanted(cmd, ofTables,
			"has no effect with a config; set the config's keys instead, such as --set pipeline.stages=4"); err != nil {
			return err
		}
		planConfig := a.planConfig
		if o.config.client.cluster != "" && !o.config.groups && !o.config.order {
			planConfig = a.planCluster
		}
		err := measuring(cmd.Context(), func(ctx context.Context) error { return planConfig(ctx, cmd, args[0], &o.config, o.drawing) })
		if errors.Is(err, forecast.ErrCosts) || errors.Is(err, forecast.ErrDevices) {
			return &usageError{err}
		}
		return err
	}
	return cmd
}

// plan makes, simulates and draws a table.
func (a *app) plan(cmd *cobra.Command, o *planOptions) error {
	if err := errors.Join(o.check(cmd, planFormats), o.checkIdle(cmd)); err != nil {
		return err
	}
	machine, err := o.machine()
	if err != nil {
		return err
	}
	table, err := o.load(cmd, machine)
	if err != nil {
		return err
	}
	if err := o.checkSlow(table.NumRanks()); err != nil {
		return err
	}
	if table, err = o.cut(cmd, table); err != nil {
		return err
	}
	a.working = true
	if o.config.order {
		r, err := orderOf(table, o.spec)
		if err != nil {
			return usagef("--order: %w", err)
		}
		return r.writeTo(a, o.drawing)
	}
	report, timeline, err := scheduler.Analyse(table)
	if err != nil {
		return err
	}
	if !o.atUnitCosts(cmd) {
		if timeline, err = machine.Simulate(table); err != nil {
			return err
		}
	}
	var facts []draw.Fact
	if timeline.SteadyStateStep, err = machine.SteadyStateStep(table); err != nil && !errors.Is(err, scheduler.ErrPeriod) {
		return err
	}
	return o.write(a, func(w io.Writer) error { return o.draw(w, a, table, report, timeline, facts) })
}

// writesTable says whether the format is that of a table, which has no times.
func (o *planOptions) writesTable() bool { return o.format == "csv" || o.format == "comms" }

// timeless names the flag that requests an output without times; "": there is none.
func (o *planOptions) timeless() string {
	switch {
	case o.config.order:
		return "--order"
	case o.writesTable():
		return "--format " + o.format
	}
	return ""
}

// checkIdle rejects flags that have no effect on the output.
func (o *planOptions) checkIdle(cmd *cobra.Command) error {
	var errs []error
	if o.jitter == 0 {
		errs = append(errs, idle(cmd, "without --jitter", "seed"))
	}
	switch {
	case o.config.order:
		errs = append(errs, o.textOrJSON("--order"), idle(cmd, "with --order", "full", "columns"))
	case o.format != "json":
		errs = append(errs, idle(cmd, "without --format json", "full"))
	}
	chooses := o.spec.Schedule == scheduler.Auto
	if !chooses && o.table == "" {
		errs = append(errs, idle(cmd, "without --schedule auto", "max-in-flight"))
	}
	if o.spec.ForwardOnly {
		errs = append(errs, idle(cmd, "with --forward-only, which computes no weight gradients", "defer-weights"))
		errs = append(errs, idle(cmd, "with --forward-only, which holds no outputs for a backward", "max-in-flight"))
	}
	if flag := o.timeless(); flag != "" {
		beside := "with " + flag + ", which has no times"
		errs = append(errs, idle(cmd, beside, "cores"))
		if !chooses {
			errs = append(errs, idle(cmd, beside, "costs", "link", "jitter", "slow"))
		}
		errs = append(errs, idle(cmd, beside, "exchange"))
	}
	return errors.Join(errs...)
}

// machine is the machine on which the table is simulated.
func (o *planOptions) machine() (scheduler.Machine, error) {
	if len(o.costs) != 3 {
		return scheduler.Machine{}, usagef("--costs has %d numbers; give three, for F, I and W, such as --costs 1,1,1", len(o.costs))
	}
	f, i, w := o.costs[0], o.costs[1], o.costs[2]
	var costs scheduler.Costs = func(_ int, a scheduler.Action) float64 {
		if a.Type.IsExchange() {
			return o.exchange
		}
		return [...]float64{scheduler.F: f, scheduler.I: i, scheduler.W: w, scheduler.B: i + w}[a.Type]
	}
	if !(o.exchange >= 0) || math.IsInf(o.exchange, 1) {
		return scheduler.Machine{}, usagef("--exchange %v: give a finite time of 0 or more", o.exchange)
	}
	if o.jitter < 0 || o.jitter > 1 {
		return scheduler.Machine{}, usagef("--jitter %v: give a share from 0 to 1", o.jitter)
	}
	if o.jitter > 0 {
		costs = scheduler.Jittered(costs, o.jitter, o.seed)
	}
	if o.slow != "" {
		var factor float64
		if n, err := fmt.Sscanf(o.slow, "%d=%g", &o.slowRank, &factor); err != nil || n != 2 || o.slowRank < 0 || !(factor > 0) {
			return scheduler.Machine{}, usagef("--slow %q: give a rank and the factor by which it is slower, such as --slow 2=1.5", o.slow)
		}
		costs = scheduler.Slowed(costs, o.slowRank, factor)
	}
	o.spec.Costs = costs
	m := scheduler.Machine{Costs: costs}
	if !(o.cores >= 0) || math.IsInf(o.cores, 1) {
		return m, usagef("--cores %v: give a finite number of cores, 0 or more", o.cores)
	}
	if o.cores > 0 {
		m.Share = scheduler.SharedCores(o.cores)
	}
	if !(o.link >= 0) {
		return m, usagef("--link %v: give a time of 0 or more", o.link)
	}
	if o.link > 0 {
		m.Link = func(_, _ int) float64 { return o.link }
	}
	return m, nil
}

// checkSlow rejects a slow rank that the table does not have.
func (o *planOptions) checkSlow(ranks int) error {
	if o.slow != "" && o.slowRank >= ranks {
		return usagef("--slow %s: the table has no rank %d; its %s are numbered from 0", o.slow, o.slowRank, words.Plural(ranks, "rank"))
	}
	return nil
}

// atUnitCosts says whether no flag describes the machine.
func (o *planOptions) atUnitCosts(cmd *cobra.Command) bool {
	return !slices.ContainsFunc([]string{"costs", "link", "cores", "jitter", "slow", "exchange"}, cmd.Flags().Changed)
}

// load generates or reads the table.
func (o *planOptions) load(cmd *cobra.Command, m scheduler.Machine) (*scheduler.Table, error) {
	if o.table == "" {
		s := o.spec
		if s.Chunks == 0 {
			s.Chunks = scheduler.DefaultChunks(s.Schedule)
		}
		s.Link = m.Link
		t, err := scheduler.Generate(s)
		if err != nil {
			return nil, usagef("%w", err)
		}
		return t, nil
	}
	for _, name := range []string{"schedule", "stages", "chunks", "microbatches", "microbatch-group-size", "max-in-flight", "defer-weights",
		"forward-only"} {
		if cmd.Flags().Changed(name) {
			return nil, usagef("--%s can't be combined with --table: the table defines it; use only one", name)
		}
	}
	return plan.ReadTable(o.table)
}

// cut cuts the overlapped pairs of a table at the exchanges of layers with experts.
func (o *planOptions) cut(cmd *cobra.Command, t *scheduler.Table) (*scheduler.Table, error) {
	parts := t.HasParts()
	switch {
	case o.layers < 0 || o.layers > scheduler.MaxParts/2-1:
		return nil, usagef("--expert-layers %d: give a number of layers from 0 to %d", o.layers, scheduler.MaxParts/2-1)
	case o.layers == 0 && !parts:
		return t, unwanted(cmd, []string{"exchange"}, "has no effect without exchanges of tokens; add --expert-layers, or remove it")
	case o.layers == 0:
		return t, nil
	case o.config.order:
		return nil, idle(cmd, "with --order", "expert-layers")
	case parts:
		return nil, usagef("--expert-layers %d: %s is cut already; leave the flag out", o.layers, o.table)
	case !t.HasPairs():
		return nil, usagef("--expert-layers %d: the table has no overlapped pairs to cut; use --schedule %s, or pairs of your own, "+
			"(0F5;0B3)OVERLAP_F_B", o.layers, scheduler.DualPipeV)
	}
	out, err := t.Cut(scheduler.ExpertLayers(o.layers))
	if err != nil {
		return nil, usagef("--expert-layers %d: %w", o.layers, err)
	}
	return out, nil
}

// writeCommunication writes a table with sends and receives.
func writeCommunication(w io.Writer, t *scheduler.Table) error {
	if n := len(t.Skips); n > 0 {
		return fmt.Errorf("--format comms: the model has %d skip edges (the first: %v), which this format can't represent; use --format csv", n,
			t.Skips[0])
	}
	_, err := io.WriteString(w, t.CSVWithCommunication())
	return err
}

// draw writes a format.
func (o *planOptions) draw(w io.Writer, a *app, t *scheduler.Table, r *scheduler.Report, tl *scheduler.Timeline, facts []draw.Fact) error {
	text := func(s string) error {
		_, err := io.WriteString(w, s)
		return err
	}
	switch o.format {
	case "csv":
		return text(t.CSV())
	case "comms":
		return writeCommunication(w, t)
	case "json":
		return draw.Summary(w, t, r, tl, o.full)
	}
	chart := draw.FromTimeline(t, tl)
	chart.Facts, chart.Credits = facts, &r.Credits
	if tl.SteadyStateStep > 0 && tl.SteadyStateStep < tl.Makespan {
		chart.Facts = append(chart.Facts, draw.Fact{Label: "period",
			Value: fmt.Sprintf("%.4g a step, if the next step starts without waiting for the optimizer", tl.SteadyStateStep)})
	}
	if r.OutOfOrder.Any() {
		chart.Facts = append(chart.Facts, draw.Fact{Label: r.OutOfOrder.String(),
			Value: "not in microbatch order: sums may round differently than under other schedules"})
	}
	return drawCharts(w, a, o.drawing, chart)
}

// drawing are the flags of commands that draw.
type drawing struct {
	format  string
	out     string
	columns int
}

func (d *drawing) flags(f *pflag.FlagSet, formats []string) {
	f.StringVar(&d.format, "format", "ascii", "output `format`: "+strings.Join(formats, ", "))
	f.StringVar(&d.out, "out", "", "`file` to write to (default: standard output)")
	f.IntVar(&d.columns, "columns", 0, "width of the ascii drawing, a `number` of characters (default: the terminal's width, else 160)")
}

func (d *drawing) check(cmd *cobra.Command, formats []string) error {
	if !slices.Contains(formats, d.format) {
		return usagef("--format %q: give one of %s%s", d.format, strings.Join(formats, ", "), didYouMean(d.format, formats, ""))
	}
	if d.format != "ascii" {
		return idle(cmd, "with --format "+d.format, "columns")
	}
	return nil
}

// textOrJSON rejects the formats that a flag does not support.
func (d *drawing) textOrJSON(flag string) error {
	if d.format != "ascii" && d.format != "json" {
		return usagef("--format %s: %s supports only ascii and json", d.format, flag)
	}
	return nil
}

// writeJSON writes v as indented JSON.
func writeJSON(w io.Writer, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return err
}

// write writes to --out, or to standard output.
func (d *drawing) write(a *app, draw func(io.Writer) error) (err error) {
	switch {
	case d.out != "":
	case d.format == "ascii":
		return draw(a.people())
	case d.format == "json":
		return draw(a.jsonOut())
	case d.format == "perfetto" && a.terminal:
		return usagef("--out is missing: a Perfetto trace is binary; give a file, such as --out step.pftrace, and open it at ui.perfetto.dev")
	case d.format == "perfetto":
		return draw(a.out)
	default:
		return draw(a.programs())
	}
	f, err := os.Create(d.out)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	return draw(f)
}

// drawCharts draws charts in the format of d.
func drawCharts(w io.Writer, a *app, d drawing, charts ...draw.Chart) error {
	switch d.format {
	case "svg":
		return draw.SVG(w, charts...)
	case "html":
		return draw.HTML(w, charts...)
	case "perfetto":
		return draw.Perfetto(w, charts...)
	}
	columns := d.columns
	if columns == 0 {
		columns = planColumns
		if a.width != nil && d.out == "" {
			columns = a.width()
		}
	}
	return draw.ASCII(w, columns, charts...)
}

// planColumns is the width of an ascii drawing outside a terminal.
const planColumns = 160
