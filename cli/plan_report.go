package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/scheduler"
)

// text writes the report for people.
func (r *planReport) text(w io.Writer) error {
	p := &planText{w: w}
	if g, ok := gpus.Named(r.Estimated); ok {
		p.printf("Estimate for %s, from shapes, its data sheet (%.0f TFLOP/s in bfloat16, %.3g TB/s, %s) and the efficiency measured on one H200. Large models may run faster.\n",
			g.Name, g.BF16FLOPs/1e12, g.BytesPerS/1e12, words.Bytes(g.MemoryBytes))
	}
	p.costs(r.Costs)
	switch {
	case r.ExpertImbalance > 1:
		p.line("of the ranks that share experts, the busiest one is assumed to get %v times the mean number of tokens (--expert-imbalance)",
			r.ExpertImbalance)
	case r.ExpertImbalance == 1:
		p.line("ranks that share experts are assumed to get equally many tokens; --expert-imbalance F assumes other loads")
	}
	p.heading("As configured")
	p.option(r.Configured)
	if v := r.Check; v != nil {
		p.line("step: measured %s ms, predicted %s ms, ratio predicted / measured %.3f (median of %s)", round(v.MeasuredStepMS),
			round(v.PredictedStepMS), v.StepRatio, words.Plural(v.Pairs, "pair"))
		if v.MeasuredBytes > 0 {
			p.line("memory: measured %s, predicted %s, ratio predicted / measured %.3f", words.Bytes(v.MeasuredBytes), words.Bytes(v.PredictedBytes),
				v.MemoryRatio)
		}
	}
	p.recommended(r)
	return p.err
}

// planText writes lines and keeps the first error.
type planText struct {
	w   io.Writer
	err error
}

func (p *planText) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *planText) heading(s string)                { p.printf("\n%s\n", s) }
func (p *planText) line(format string, args ...any) { p.printf("  "+format+"\n", args...) }

// layerNames lists the names of the layers' symbols, in the order of a model.
var layerNames = []struct{ symbol, name string }{
	{string(rune(scheduler.SymbolEmbedding)), "embedding"}, {string(rune(scheduler.SymbolLayer)), "layer"},
	{string(rune(scheduler.SymbolMTP)), "multi-token prediction"}, {string(rune(scheduler.SymbolLoss)), "head and loss"}}

func (p *planText) costs(c *forecast.Costs) {
	p.printf("Costs: %s kernels, %s, %s, context %d\n", c.Kernels, c.DType, words.Plural(c.Threads, "thread"), c.Context)
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  microbatch size\tms per\tforward\tinput gradient\tweight gradient\tbackward\t")
	for _, b := range c.Batches {
		for _, l := range layerNames {
			if cost, ok := b.Layers[l.symbol]; ok {
				fmt.Fprintf(t, "  %d\t%s\t%s\t%s\t%s\t%s\t\n", b.Microbatch, l.name, layerMS(cost.ForwardMS), layerMS(cost.InputGradMS),
					layerMS(cost.WeightGradMS), layerMS(cost.BackwardMS))
			}
		}
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
	if c.Shrunk > 1 {
		p.line("measured on layers of 1/%d the width, scaled by the ratio of operations: full layers need too much memory or time on this machine", c.Shrunk)
	}
	p.line("updating one weight takes %s ns", round(c.UpdateNS))
	if n := len(c.Shares); n > 1 {
		p.line("with %d actions at the same time, each runs at %.2f of its speed alone, all together at %.2f", n, c.Shares[n-1],
			float64(n)*c.Shares[n-1])
	}
}

// layerMS formats a layer's time; 0 if the pass does nothing.
func layerMS(ms float64) string {
	if ms == 0 {
		return "0"
	}
	return round(ms)
}

func (p *planText) option(o *forecast.Option) {
	if o.Ranks > o.Stages {
		p.line("%s: %s", words.Plural(o.Ranks, "rank"), gridOf(o))
	}
	p.line("%s: %s × %s, %s of %s, layout %s, recomputation %s", o.Schedule, words.Plural(o.Stages, "stage"), words.Plural(o.Chunks, "chunk"),
		words.Plural(o.Microbatches, "microbatch"), words.Plural(o.Microbatch, "sequence"), o.Layout, recomputation(o))
	if o.Misfit != "" {
		p.line("does not fit: %s", o.Misfit)
		return
	}
	p.line("step %s ms (%s ms of it for the update), %s tokens/s%s, bubble %.1f %%, memory %s", round(o.StepMS), round(o.UpdateMS),
		words.Short(o.TokensPerS), mfu(o), o.BubblePct, memory(o))
	if o.Before != nil {
		p.line("before the first step one process computes %s on its CPU, once, with %s of memory", o.Before.What, words.Bytes(o.Before.Bytes))
	}
	if o.MessageMS > 0 && o.Stages > 1 {
		p.line("a message between two devices takes %s ms", round(o.MessageMS))
	}
	var with []string
	if o.TensorMS > 0 {
		with = append(with, round(o.TensorMS)+" ms with its tensor group")
	}
	if o.ContextMS > 0 {
		with = append(with, round(o.ContextMS)+" ms with its context group")
	}
	if o.ExpertMS > 0 {
		with = append(with, round(o.ExpertMS)+" ms with its expert group")
	}
	if o.DataMS > 0 {
		with = append(with, round(o.DataMS)+" ms with its replicas")
	}
	if len(with) > 0 {
		p.line("a rank's collectives take %s per step, partly while it computes", strings.Join(with, " and "))
	}
}

// mfu formats the model FLOPs utilization: the model's operations as a share of the devices' peak.
func mfu(o *forecast.Option) string {
	if o.MFUPct == 0 {
		return ""
	}
	return fmt.Sprintf(" (MFU %.1f %%)", o.MFUPct)
}

// gridOf describes an option's grid.
func gridOf(o *forecast.Option) string {
	text := fmt.Sprintf("tensor %d × data %d × pipeline %d", o.Tensor, o.Data, o.Stages)
	if o.Context > 1 {
		text += fmt.Sprintf(" × context %d", o.Context)
	}
	if o.Expert > 1 {
		text += fmt.Sprintf(", expert %d", o.Expert)
	}
	if o.WholeExperts {
		text += ", expert_tensor 1"
	}
	if o.Overlap {
		text += ", expert_overlap"
	}
	if o.Sequence {
		text += ", sequence"
	}
	if o.Zero > 0 {
		text += fmt.Sprintf(", zero %d", o.Zero)
	}
	return text
}

// shortGrid describes an option's grid in a table.
func shortGrid(o *forecast.Option) string {
	text := fmt.Sprintf("tp%d dp%d pp%d", o.Tensor, o.Data, o.Stages)
	if o.Context > 1 {
		text += fmt.Sprintf(" cp%d", o.Context)
	}
	if o.Expert > 1 {
		text += fmt.Sprintf(" ep%d", o.Expert)
	}
	if o.WholeExperts {
		text += " etp1"
	}
	if o.Overlap {
		text += "+overlap"
	}
	if o.Zero > 0 {
		text += fmt.Sprintf(" zero%d", o.Zero)
	}
	return text
}

func recomputation(o *forecast.Option) string {
	if o.RecomputeKeep > 0 {
		return fmt.Sprintf("%s, keep %d", o.Recompute, o.RecomputeKeep)
	}
	return o.Recompute
}

// memory formats the memory that the devices need.
func memory(o *forecast.Option) string {
	var each []string
	for d := range o.TensorBytes {
		each = append(each, words.Bytes(o.DeviceBytes(d)))
	}
	if len(each) > 8 {
		each = []string{fmt.Sprintf("up to %s on a device", words.Bytes(o.NeedBytes()))}
	}
	text := strings.Join(each, ", ")
	for _, part := range []struct {
		bytes []int64
		what  string
	}{{o.ShadowBytes, "for the shadow of another rank"},
		{o.LaneBytes, "shared with other processes of its node, for the tensors that it sends them"}} {
		if part.bytes != nil && slices.Max(part.bytes) > 0 {
			text += fmt.Sprintf("; up to %s of each device's memory is %s", words.Bytes(slices.Max(part.bytes)), part.what)
		}
	}
	return text
}

func (p *planText) recommended(r *planReport) {
	p.heading("Recommended")
	given := fmt.Sprintf("%s on each of %s", words.Bytes(r.cluster.MemoryBytes), words.Plural(r.cluster.Devices, "device"))
	fits := "it fits in " + given
	if r.cluster.MemoryBytes == 0 {
		fits = "the devices' memory is unknown; give it with --memory-gib"
	}
	if r.Best == nil {
		if len(r.TooLarge) == 0 {
			p.line("none: none of the %s is possible. The first error: %v", words.Plural(r.Impossible, "option"), r.reason)
			return
		}
		p.line("none: of %d options, the %d fastest need more than %s, even with recomputation; the fastest needs %s.", r.Tried, len(r.TooLarge),
			given, words.Bytes(r.TooLarge[0].NeedBytes()))
		if r.left > 0 {
			p.line("%s were not tried, because their estimates are slower.", words.Plural(r.left, "option"))
		}
		p.line("Use a smaller model, a smaller batch.sequences, or more devices.")
		return
	}
	p.option(r.Best)
	if r.Configured.Misfit == "" {
		fits = fmt.Sprintf("%.2f × the speed of the config as it is; %s", r.Configured.StepMS/r.Best.StepMS, fits)
	}
	p.line("%s", fits)
	p.printf("\n%s", recommendation(r.Best))
	p.heading("Why: " + why(r))
	if r.Impossible > 0 {
		p.line("skipped %s; the first error: %v", words.Plural(r.Impossible, "impossible option"), r.reason)
	}
	for _, g := range []struct {
		name    string
		options []*forecast.Option
	}{{"best option for each grid", byGrid(r)}, {"best option for each number of stages", byStages(r)},
		{"best option for each schedule", r.BySchedule},
		{"best option for each size of microbatch", r.ByBatch}, {"faster, but too large for the memory", r.TooLarge}} {
		p.table(g.name, g.options, r.Best)
	}
	p.layers(r)
}

// why explains the recommendation.
func why(r *planReport) string {
	first := r.fastest()
	if first == nil || first.StepMS >= r.Best.StepMS {
		return fmt.Sprintf("the fastest of %s", words.Plural(r.Tried, "option"))
	}
	return fmt.Sprintf("the simplest of the options within 2 %% of the fastest, of %s in total; the fastest is %.1f %% faster (%s, %s)",
		words.Plural(r.Tried, "option"),
		100*(r.Best.StepMS/first.StepMS-1), first.Schedule, shortGrid(first))
}

// fastest returns the first row of the tables.
func (r *planReport) fastest() *forecast.Option {
	for _, rows := range [][]*forecast.Option{r.ByGrid, r.ByStages, r.BySchedule, r.ByBatch} {
		if len(rows) > 0 {
			return rows[0]
		}
	}
	return nil
}

// byGrid and byStages compare grids if some have replicas or groups, otherwise numbers of stages.
func byGrid(r *planReport) []*forecast.Option {
	for _, o := range r.ByGrid {
		if o.Ranks > o.Stages {
			return r.ByGrid
		}
	}
	return nil
}

func byStages(r *planReport) []*forecast.Option {
	if byGrid(r) != nil {
		return nil
	}
	return r.ByStages
}

// mostListed is the most options that a table lists.
const mostListed = 8

func (p *planText) table(name string, options []*forecast.Option, best *forecast.Option) {
	if len(options) == 0 {
		return
	}
	p.line("%s", name)
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "    schedule\tgrid\tchunks\tmicrobatch\trecomputation\tstep ms\t× recommended\tbubble %\tmemory\t")
	for _, o := range options[:min(len(options), mostListed)] {
		fmt.Fprintf(t, "    %s\t%s\t%d\t%d\t%s\t%s\t%.2f\t%.1f\t%s\t\n", o.Schedule, shortGrid(o), o.Chunks, o.Microbatch, recomputation(o),
			round(o.StepMS), o.StepMS/best.StepMS, o.BubblePct, words.Bytes(o.NeedBytes()))
	}
	if err := t.Flush(); p.err == nil {
		p.err = err
	}
	if more := len(options) - mostListed; more > 0 {
		p.line("  and %d more", more)
	}
}

// layers explains how the layers are spread.
func (p *planText) layers(r *planReport) {
	b, err := r.Costs.Batch(r.Best.Microbatch)
	if err != nil || r.Best.Stages == 1 {
		return
	}
	all := func(symbol string) float64 { return b.Layers[symbol].ForwardMS + b.Layers[symbol].BackwardMS }
	layer := all("t")
	p.line("the layout balances forward and backward times: the embedding takes %.2f and head and loss %.2f of a layer's time", all("E")/layer,
		all("L")/layer)
}
