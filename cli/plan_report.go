package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/forecast"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/scheduler"
)

// text says for a person what was found out.
func (r *planReport) text(w io.Writer) error {
	p := &planText{w: w}
	if g, ok := gpus.Named(r.Estimated); ok {
		p.printf("An estimate for %s, from shapes, its data sheet (%.0f TFLOP/s in bfloat16, %.3g TB/s, %s) and the efficiency measured on one H200. Large models may run faster.\n",
			g.Name, g.BF16FLOPs/1e12, g.BytesPerS/1e12, words.Bytes(g.MemoryBytes))
	}
	p.costs(r.Costs)
	p.heading("As configured")
	p.option(r.Configured)
	if v := r.Check; v != nil {
		p.line("measured %s ms a step, predicted %s, predicted / measured %.3f, the median of %s", round(v.MeasuredStepMS),
			round(v.PredictedStepMS), v.StepRatio, words.Plural(v.Pairs, "pair"))
		if v.MeasuredBytes > 0 {
			p.line("measured %s of memory, predicted %s, predicted / measured %.3f", words.Bytes(v.MeasuredBytes), words.Bytes(v.PredictedBytes),
				v.MemoryRatio)
		}
	}
	p.recommended(r)
	return p.err
}

// planText writes lines; the first error stays.
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

// layerNames are the symbols' names, in the order of a model.
var layerNames = []struct{ symbol, name string }{
	{string(rune(scheduler.SymbolEmbedding)), "embedding"}, {string(rune(scheduler.SymbolLayer)), "layer"},
	{string(rune(scheduler.SymbolMTP)), "multi-token prediction"}, {string(rune(scheduler.SymbolLoss)), "head and loss"}}

func (p *planText) costs(c *forecast.Costs) {
	p.printf("Costs: %s kernels, %s, %s, context %d\n", c.Kernels, c.DType, words.Plural(c.Threads, "thread"), c.Context)
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  microbatch of\tms for each\tforward\tinput gradient\tweight gradient\tbackward\t")
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
		p.line("measured on layers 1/%d as wide and scaled by the ratio of their operations: full layers take too much memory or time on this machine", c.Shrunk)
	}
	p.line("the update of a weight takes %s ns", round(c.UpdateNS))
	if n := len(c.Shares); n > 1 {
		p.line("with %d actions at a time, each runs at %.2f of solo speed, all together at %.2f", n, c.Shares[n-1], float64(n)*c.Shares[n-1])
	}
}

// layerMS is a layer's time; some passes have nothing to do.
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
	p.line("step %s ms (%s of it the update), %s tokens/s%s, bubble %.1f %%, memory %s", round(o.StepMS), round(o.UpdateMS),
		words.Short(o.TokensPerS), mfu(o), o.BubblePct, memory(o))
	if o.MessageMS > 0 && o.Stages > 1 {
		p.line("a message between two devices takes %s ms", round(o.MessageMS))
	}
	var with []string
	if o.TensorMS > 0 {
		with = append(with, round(o.TensorMS)+" ms in its tensor group")
	}
	if o.ContextMS > 0 {
		with = append(with, round(o.ContextMS)+" ms in its context group")
	}
	if o.DataMS > 0 {
		with = append(with, round(o.DataMS)+" ms with its replicas")
	}
	if len(with) > 0 {
		p.line("a rank's collectives take %s in a step, some of it beside what it computes", strings.Join(with, " and "))
	}
}

// mfu is what part of the devices' peak the model's operations are.
func mfu(o *forecast.Option) string {
	if o.MFUPct == 0 {
		return ""
	}
	return fmt.Sprintf(" (MFU %.1f %%)", o.MFUPct)
}

// gridOf names the sizes of an option's grid.
func gridOf(o *forecast.Option) string {
	text := fmt.Sprintf("tensor %d × data %d × pipeline %d", o.Tensor, o.Data, o.Stages)
	if o.Context > 1 {
		text += fmt.Sprintf(" × context %d", o.Context)
	}
	if o.Sequence {
		text += ", sequence"
	}
	if o.Zero > 0 {
		text += fmt.Sprintf(", zero %d", o.Zero)
	}
	return text
}

// shortGrid names them in a table.
func shortGrid(o *forecast.Option) string {
	text := fmt.Sprintf("tp%d dp%d pp%d", o.Tensor, o.Data, o.Stages)
	if o.Context > 1 {
		text += fmt.Sprintf(" cp%d", o.Context)
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

// memory is what the devices need.
func memory(o *forecast.Option) string {
	var each []string
	for d := range o.TensorBytes {
		each = append(each, words.Bytes(o.TensorBytes[d]+o.CheckpointBytes[d]))
	}
	if len(each) > 8 {
		return fmt.Sprintf("at most %s on a device", words.Bytes(o.NeedBytes()))
	}
	return strings.Join(each, ", ")
}

func (p *planText) recommended(r *planReport) {
	p.heading("Recommended")
	given := fmt.Sprintf("%s on each of %s", words.Bytes(r.cluster.MemoryBytes), words.Plural(r.cluster.Devices, "device"))
	fits := "it fits " + given
	if r.cluster.MemoryBytes == 0 {
		fits = "what memory the devices have is not known: --memory-gib tells"
	}
	if r.Best == nil {
		if len(r.TooLarge) == 0 {
			p.line("nothing: none of %s is possible. The first error: %v", words.Plural(r.Impossible, "option"), r.reason)
			return
		}
		p.line("nothing: of %d options the %d fastest need more than %s, with recomputation too; the fastest needs %s.", r.Tried, len(r.TooLarge),
			given, words.Bytes(r.TooLarge[0].NeedBytes()))
		if r.left > 0 {
			p.line("%s were not tried, because they looked slower.", words.Plural(r.left, "option"))
		}
		p.line("Make the model or batch.sequences smaller, or take more devices.")
		return
	}
	p.option(r.Best)
	if r.Configured.Misfit == "" {
		fits = fmt.Sprintf("%.2f × the speed of what is configured; %s", r.Configured.StepMS/r.Best.StepMS, fits)
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
	}{{"for each grid", byGrid(r)}, {"for each number of stages", byStages(r)}, {"for each schedule", r.BySchedule},
		{"for each size of microbatch", r.ByBatch}, {"faster, but too large for the memory", r.TooLarge}} {
		p.table(g.name, g.options, r.Best)
	}
	p.layers(r)
}

// why explains the choice of the recommendation.
func why(r *planReport) string {
	first := r.fastest()
	if first == nil || first.StepMS >= r.Best.StepMS {
		return fmt.Sprintf("the fastest of %s", words.Plural(r.Tried, "option"))
	}
	return fmt.Sprintf("of %s the simplest of those within 2 %% of the fastest, which is %.1f %% faster (%s, %s)",
		words.Plural(r.Tried, "option"),
		100*(r.Best.StepMS/first.StepMS-1), first.Schedule, shortGrid(first))
}

// fastest is the first row of the tables.
func (r *planReport) fastest() *forecast.Option {
	for _, rows := range [][]*forecast.Option{r.ByGrid, r.ByStages, r.BySchedule, r.ByBatch} {
		if len(rows) > 0 {
			return rows[0]
		}
	}
	return nil
}

// byGrid and byStages compare grids, where there are some of more than stages, else stages.
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

// mostListed is how many options a table lists.
const mostListed = 8

func (p *planText) table(name string, options []*forecast.Option, best *forecast.Option) {
	if len(options) == 0 {
		return
	}
	p.line("%s", name)
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "    schedule\tgrid\tchunks\tmicrobatch\trecomputation\tstep ms\tof recommended\tbubble %\tmemory\t")
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

// layers says how the layers were spread.
func (p *planText) layers(r *planReport) {
	b, err := r.Costs.Batch(r.Best.Microbatch)
	if err != nil || r.Best.Stages == 1 {
		return
	}
	all := func(symbol string) float64 { return b.Layers[symbol].ForwardMS + b.Layers[symbol].BackwardMS }
	layer := all("t")
	p.line("the layout goes by what forward and backward take: the embedding %.2f, head and loss %.2f of a layer", all("E")/layer,
		all("L")/layer)
}
