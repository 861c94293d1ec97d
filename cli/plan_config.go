package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// planConfigOptions are the flags of `engine plan CONFIG`.
type planConfigOptions struct {
	sets      []string
	devices   int
	memoryGiB float64
	latencyUS float64
	gigabits  float64
	perNode   int     // devices per node; 0: all links are equal
	nodeUS    float64 // latency between two devices of one node
	nodeGbps  float64
	imbalance float64 // load of the busiest rank of an expert group, divided by the mean
	device    string  // the GPU to estimate costs for, by its name in package gpus
	costs     string  // the file to read layer costs from
	save      string  // the file to write layer costs to
	seconds   float64
	check     bool
	pairs     int
	groups    bool
	order     bool
	client    clientFlags
}

// flags adds the flags and returns their names.
func (o *planConfigOptions) flags(cmd *cobra.Command) []string {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.IntVar(&o.devices, "devices", 1,
		"`number` of devices, each like this machine or like --device, for one rank each; with 1, all ranks share it")
	f.Float64Var(&o.memoryGiB, "memory-gib", 0,
		"memory of a device that a run may use, in `GiB` (default: device.memory_gib, else the free memory here)")
	f.Float64Var(&o.latencyUS, "latency-us", 0, "latency of an empty message between two devices, in `microseconds`")
	f.Float64Var(&o.gigabits, "bandwidth-gbps", 0,
		"bandwidth of a device's link to other devices, in `Gbit/s` (default: messages take no time)")
	f.IntVar(&o.perNode, "devices-per-node", 0,
		"`N` devices of a node share a faster link; ranks 0 to N-1 are on the first node")
	f.Float64Var(&o.nodeGbps, "node-bandwidth-gbps", 0,
		"bandwidth of the links inside a node, in `Gbit/s` (default: the data sheet's with --device, else messages take no time)")
	f.Float64Var(&o.nodeUS, "node-latency-us", 0,
		"latency of an empty message inside a node, in `microseconds` (default: --latency-us)")
	f.Float64Var(&o.imbalance, "expert-imbalance", 1,
		"tokens of the busiest rank of an expert group, as a `factor` of the group's mean (parallel.expert)")
	f.StringVar(&o.device, "device", "", "estimate the costs for this GPU instead of measuring here; its `name` is one of: "+
		strings.Join(gpus.Names(), ", "))
	f.StringVar(&o.costs, "layer-costs", "", "read layer costs from this `file` of --save-costs, instead of measuring")
	f.StringVar(&o.save, "save-costs", "", "`file` to write the layer costs to")
	f.Float64Var(&o.seconds, "seconds", 1, "time to measure each size of microbatch, in `seconds`")
	f.BoolVar(&o.check, "check", false, "train some steps as configured and compare them with the prediction")
	f.IntVar(&o.pairs, "pairs", 5, "`number` of times that --check alternates between measuring costs and steps")
	f.BoolVar(&o.groups, "groups", false,
		"print every rank's place in the grid of [parallel] and its groups; nothing is measured")
	var names []string
	f.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	cmd.Flags().AddFlagSet(f)
	setFlag(cmd, &o.sets)
	o.client.set(cmd)
	for _, name := range []string{"layer-costs", "save-costs"} {
		must(cmd.MarkFlagFilename(name, "json"))
	}
	return append(names, "set", "cluster", "token-file", "cert-file", "dir")
}

// measuringFlags have no effect if nothing is measured or predicted.
var measuringFlags = []string{"devices", "memory-gib", "latency-us", "bandwidth-gbps", "devices-per-node", "node-bandwidth-gbps",
	"node-latency-us", "expert-imbalance", "layer-costs", "save-costs", "seconds", "check", "pairs", "cluster"}

// Limits of the flags' values.
const (
	maxDevices = 1 << 16
	maxPairs   = 1000

	maxMemoryGiB = 1 << 20
	maxImbalance = 1000
)

func (o *planConfigOptions) validate() error {
	switch {
	case o.devices < 1 || o.devices > maxDevices:
		return usagef("--devices %d: give 1 to %d", o.devices, maxDevices)
	case !(o.memoryGiB >= 0 && o.memoryGiB <= maxMemoryGiB):
		return usagef("--memory-gib %v: give a number of GiB from 0 to %d", o.memoryGiB, maxMemoryGiB)
	case !(o.latencyUS >= 0 && o.latencyUS <= 1e9):
		return usagef("--latency-us %v: give microseconds from 0 to 1e9", o.latencyUS)
	case !(o.gigabits >= 0 && o.gigabits <= 1e9):
		return usagef("--bandwidth-gbps %v: give Gbit/s from 0 to 1e9", o.gigabits)
	case o.perNode < 0 || o.perNode > o.devices || o.perNode > 0 && o.devices%o.perNode != 0:
		return usagef("--devices-per-node %d: give a number that divides the %d of --devices", o.perNode, o.devices)
	case !(o.nodeUS >= 0 && o.nodeUS <= 1e9):
		return usagef("--node-latency-us %v: give microseconds from 0 to 1e9", o.nodeUS)
	case !(o.nodeGbps >= 0 && o.nodeGbps <= 1e9):
		return usagef("--node-bandwidth-gbps %v: give Gbit/s from 0 to 1e9", o.nodeGbps)
	case !(o.imbalance >= 1 && o.imbalance <= maxImbalance):
		return usagef("--expert-imbalance %v: give a factor from 1, equal loads, to %d", o.imbalance, maxImbalance)
	case !(o.seconds > 0 && o.seconds <= 3600):
		return usagef("--seconds %v: give more than 0, up to 3600", o.seconds)
	case o.pairs < 1 || o.pairs > maxPairs:
		return usagef("--pairs %d: give 1 to %d", o.pairs, maxPairs)
	case o.device != "" && !known(o.device):
		return usagef("--device %q: give one of %s%s", o.device, strings.Join(gpus.Names(), ", "), didYouMean(o.device, gpus.Names(), ""))
	case o.device != "" && (o.check || o.costs != ""):
		return usagef("--device can't be combined with --check or --layer-costs: costs are either estimated or measured; use only one")
	case o.check && o.costs != "":
		return usagef("--check can't be combined with --layer-costs: it measures the costs itself; use only one")
	}
	return nil
}

func known(device string) bool {
	_, ok := gpus.Named(device)
	return ok
}

// gpu returns the GPU to estimate costs for.
func (o *planConfigOptions) gpu() gpus.GPU {
	g, _ := gpus.Named(o.device)
	return g
}

// checkIdle rejects flags that have no effect on the prediction.
func (o *planConfigOptions) checkIdle(cmd *cobra.Command) error {
	var errs []error
	if !o.check {
		errs = append(errs, idle(cmd, "without --check", "pairs"))
	}
	if o.costs != "" {
		errs = append(errs, idle(cmd, "with --layer-costs, which measures nothing", "seconds"))
	}
	if o.device != "" {
		errs = append(errs, idle(cmd, "with --device, which measures nothing", "seconds"))
	}
	if o.devices == 1 {
		errs = append(errs, idle(cmd, "with one device, which sends no messages (see --devices)", "latency-us", "bandwidth-gbps",
			"devices-per-node", "expert-imbalance"))
	}
	if o.perNode <= 1 {
		errs = append(errs, idle(cmd, "without --devices-per-node of 2 or more", "node-latency-us", "node-bandwidth-gbps"))
	}
	return errors.Join(errs...)
}

func (o *planConfigOptions) cluster(cmd *cobra.Command, dtype string) forecast.Devices {
	d := forecast.Devices{Devices: o.devices, MemoryBytes: int64(o.memoryGiB * (1 << 30)), LatencyUS: o.latencyUS,
		BytesPerS: bytesPerS(o.gigabits), PeakFLOPs: o.gpu().FLOPs(dtype), ExpertImbalance: o.imbalance}
	if o.perNode > 1 {
		d.Nodes = forecast.Nodes{Devices: o.perNode, Within: forecast.Link{LatencyUS: o.latencyUS, BytesPerS: o.gpu().LinkBytesPerS}}
		if cmd.Flags().Changed("node-bandwidth-gbps") {
			d.Nodes.Within.BytesPerS = bytesPerS(o.nodeGbps)
		}
		if cmd.Flags().Changed("node-latency-us") {
			d.Nodes.Within.LatencyUS = o.nodeUS
		}
	}
	return d
}

func bytesPerS(gigabits float64) float64 { return gigabits * 1e9 / 8 }

// free returns the free memory of the config's device on this machine; 0 if the costs were measured elsewhere
// and this machine has no such device.
func (o *planConfigOptions) free(b *plan.Plan) (int64, error) {
	if limit := b.Config().Device.MemoryGiB; limit > 0 && o.devices > 1 { // each device has one rank
		return int64(limit * (1 << 30)), nil
	}
	if o.device != "" {
		return o.gpu().MemoryBytes, nil
	}
	free, err := b.FreeBytes()
	if o.costs != "" && errors.Is(err, cuda.ErrUnavailable) {
		return 0, nil
	}
	return free, err
}

// planReport is the result of `engine plan CONFIG`, in the form of its JSON.
type planReport struct {
	Costs      *forecast.Costs    `json:"costs"`
	Configured *forecast.Option   `json:"configured"`
	Best       *forecast.Option   `json:"best"` // null: nothing fits
	BySchedule []*forecast.Option `json:"by_schedule"`
	ByGrid     []*forecast.Option `json:"by_grid"`
	ByStages   []*forecast.Option `json:"by_stages"`
	ByBatch    []*forecast.Option `json:"by_microbatch"`
	TooLarge   []*forecast.Option `json:"too_large"`
	Tried      int                `json:"tried"`
	Impossible int                `json:"impossible,omitempty"` // options that are not possible, such as with a layer that fits no device
	Check      *forecast.Verdict  `json:"check,omitempty"`
	// Estimated names the GPU that the costs are estimated for; "": they were measured.
	Estimated string `json:"estimated_for,omitempty"`
	// ExpertImbalance is that of --expert-imbalance; 0: the model has no experts that ranks could share.
	ExpertImbalance float64 `json:"expert_imbalance,omitempty"`

	config  *config.Config
	cluster forecast.Devices
	reason  error // why the first impossible option is impossible
	left    int   // options that were not tried
}

// planConfig measures costs, predicts the step, and recommends options with reasons.
func (a *app) planConfig(ctx context.Context, cmd *cobra.Command, path string, o *planConfigOptions, d drawing) error {
	if err := errors.Join(o.validate(), o.checkIdle(cmd), d.check(cmd, planFormats)); err != nil {
		return err
	}
	if o.groups && o.order {
		return usagef("--groups and --order can't be combined: each prints its own table; use only one")
	}
	if o.device != "" && !o.groups && !o.order {
		o.sets = append(append([]string{}, o.sets...), "device.kind="+device.CUDA)
	}
	cfg, err := loadPlanned(path, o.sets)
	if err == nil && o.groups {
		return a.planGroups(cmd, cfg, d)
	}
	if err == nil && o.order {
		return a.planOrder(cmd, cfg, d)
	}
	if err == nil && !cfg.Language() {
		return a.planOwn(cmd, cfg, d)
	}
	a.working = true
	if err != nil {
		return err
	}
	for key, set := range map[string]bool{"preference.loss": cfg.Preference.Loss != "", "distill.from": cfg.Distill.From != ""} {
		if set && o.check {
			return cfg.Errorf(key, "the run learns from documents, but --check trains on random tokens; leave --check out")
		}
	}
	load := func(sets []string) (*config.Config, error) {
		return loadConfig(path, append(append([]string{}, o.sets...), sets...))
	}
	r := &planReport{config: cfg, cluster: o.cluster(cmd, cfg.Device.DType), Estimated: o.gpu().Name}
	if o.check {
		if r.Check, err = forecast.Check(ctx, load, o.pairs, o.seconds, a.sayMeasuring); err != nil {
			return err
		}
	}
	if err := r.find(ctx, o, a.sayMeasuring, a.warn); err != nil {
		return err
	}
	if o.save != "" {
		text, err := json.MarshalIndent(r.Costs, "", "  ")
		if err == nil {
			err = os.WriteFile(o.save, append(text, '\n'), 0o644)
		}
		if err != nil {
			return fmt.Errorf("save the layer costs: %w", err)
		}
	}
	return d.write(a, func(w io.Writer) error { return r.draw(w, a, d) })
}

// sayMeasuring prints what is being measured, since it takes a while.
func (a *app) sayMeasuring(what string) { say(a.err, "measuring %s", what) }

// find fills the report.
func (r *planReport) find(ctx context.Context, o *planConfigOptions, progress, warn func(string)) error {
	b, err := plan.Resolve(r.config, nil)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	for _, text := range b.Warnings() {
		warn(text)
	}
	switch experts := b.Model().Config.Experts.Count > 0; {
	case experts && o.devices > 1:
		r.ExpertImbalance = o.imbalance
	case o.imbalance > 1:
		return usagef("--expert-imbalance has no effect: the model has no experts; remove it")
	}
	if _, err := b.CheckWorld(1); err != nil {
		return &troupe.SetupError{Err: err}
	}
	switch _, err := b.Before(); { // before layers are measured, which takes a while
	case b.MissingTeacher(err):
		warn(fmt.Sprintf("%v; only a run that resumes needs no teacher, and the memory of the pass that computes it is left out", err))
	case err != nil:
		return &troupe.SetupError{Err: err}
	}
	if r.cluster.MemoryBytes == 0 {
		if r.cluster.MemoryBytes, err = o.free(b); err != nil {
			return err
		}
	}
	sizes := forecast.Microbatches(b.Config().Batch.Sequences, b.Config().Batch.Microbatch)
	switch {
	case o.device != "":
		r.Costs, err = forecast.Estimate(b, sizes, o.gpu())
	case o.costs != "":
		r.Costs, err = o.takeCosts()
	default:
		r.Costs, err = forecast.Measure(ctx, b, sizes, o.seconds, progress)
	}
	if err != nil {
		return err
	}
	if r.Configured, err = forecast.Configured(b, r.Costs, r.cluster); err != nil {
		return err
	}
	p, err := forecast.Recommend(ctx, b, r.Costs, r.cluster)
	if err != nil {
		return err
	}
	r.Best, r.ByGrid, r.BySchedule, r.ByStages, r.ByBatch, r.TooLarge, r.Tried = p.Best, p.ByGrid, p.BySchedule, p.ByStages, p.ByMicrobatch,
		p.TooLarge, p.Tried
	r.Impossible, r.reason, r.left = p.Impossible, p.Reason, p.Left
	return nil
}

// takeCosts reads the costs of --layer-costs.
func (o *planConfigOptions) takeCosts() (*forecast.Costs, error) {
	f, err := os.Open(o.costs)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, forecast.MaxCostsBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.costs, err)
	}
	c, err := forecast.ReadCosts(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.costs, err)
	}
	return c, nil
}

// draw writes a format.
func (r *planReport) draw(w io.Writer, a *app, d drawing) error {
	option := r.Best
	if option == nil {
		option = r.Configured
	}
	switch d.format {
	case "ascii":
		return r.text(w)
	case "json":
		return writeJSON(w, r)
	case "csv":
		_, err := io.WriteString(w, option.Plan().Table().CSV())
		return err
	case "comms":
		return writeCommunication(w, option.Plan().Table())
	}
	var charts []draw.Chart
	for _, option := range []struct {
		title string
		*forecast.Option
	}{{"as configured", r.Configured}, {"recommended", r.Best}} {
		if option.Option == nil || option.Option == r.Configured && r.Configured.Misfit != "" {
			continue
		}
		chart, err := optionChart(option.title, option.Option)
		if err != nil {
			return err
		}
		charts = append(charts, chart)
	}
	if len(charts) == 0 {
		return fmt.Errorf("nothing to draw: the config does not fit (%s), and neither does any other option", r.Configured.Misfit)
	}
	return drawCharts(w, a, d, charts...)
}

func optionChart(title string, o *forecast.Option) (draw.Chart, error) {
	table, timeline, err := o.Parts()
	if err != nil {
		return draw.Chart{}, err
	}
	c := draw.FromTimeline(table, timeline)
	c.Title, c.Unit = title+": "+c.Title, draw.Milliseconds
	c.Facts = append(c.Facts, draw.Fact{Label: "layout", Value: o.Layout})
	return c, nil
}

// recommendation returns the sections to write to the config.
func recommendation(o *forecast.Option) string {
	var s strings.Builder
	fmt.Fprintf(&s, "[pipeline]\nstages = %d\nchunks = %d\nschedule = %q\nlayout = %q\nrecompute = %q\n", o.Stages, o.Chunks, o.Schedule,
		o.Layout, o.Recompute)
	if o.RecomputeKeep > 0 {
		fmt.Fprintf(&s, "recompute_keep = %d\n", o.RecomputeKeep)
	}
	if o.Ranks > o.Stages {
		fmt.Fprintf(&s, "[parallel]\ntensor = %d\ndata = %d\n", o.Tensor, o.Data)
	}
	if o.Context > 1 {
		fmt.Fprintf(&s, "context = %d\n", o.Context)
	}
	if o.Expert > 1 {
		fmt.Fprintf(&s, "expert = %d\n", o.Expert)
	}
	if o.WholeExperts {
		s.WriteString("expert_tensor = 1\n")
	}
	if o.Overlap {
		s.WriteString("expert_overlap = true\n")
	}
	if o.Sequence {
		s.WriteString("sequence = true\n")
	}
	if o.Zero > 0 {
		fmt.Fprintf(&s, "zero = %d\n", o.Zero)
	}
	fmt.Fprintf(&s, "[batch]\nmicrobatch = %d\n", o.Microbatch)
	return s.String()
}
