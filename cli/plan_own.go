package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/term"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/scheduler/draw"
)

// loadPlanned reads a configuration to plan for. A language model's data need not be there:
// sizes are all that matters. Other families go by the fields of their data.
func loadPlanned(path string, sets []string) (*config.Config, error) {
	plain, err := loadConfig(path, sets)
	if err == nil && !plain.Language() {
		return plain, nil
	}
	sized, sizedErr := loadConfig(path, append(append([]string{}, sets...), bench.SizesOnly...))
	// Where both are wrong, it is one that has all mistakes of the other, and those of a stand-in for
	// data that the family has no use for.
	if sizedErr != nil && err != nil && mistakes(err) < mistakes(sizedErr) {
		return nil, err
	}
	return sized, sizedErr
}

func mistakes(err error) int {
	var all config.Errors
	errors.As(err, &all)
	return len(all)
}

// ownPlan is what `engine plan CONFIG` says of a model of another family than the language
// models: how it is cut, and what its ranks need. Nothing is measured: its layers differ.
type ownPlan struct {
	Family         string    `json:"family"`
	Schedule       string    `json:"schedule"`
	Stages         int       `json:"stages"`
	Chunks         int       `json:"chunks"`
	Microbatches   int       `json:"microbatches"`
	Microbatch     int       `json:"microbatch"`
	Layout         string    `json:"layout"`
	IdealBubblePct float64   `json:"ideal_bubble_pct"`
	Layers         []ownUnit `json:"layers"`
	WholeBackward  []string  `json:"whole_backward"` // names of layers
	TensorBytes    []int64   `json:"tensor_bytes"`   // by rank
	Skips          []ownSkip `json:"skips"`
	splits         bool      // the schedule has input and weight gradients apart
}

// ownSkip is an edge between chunks that are not neighbours.
type ownSkip struct {
	From     int   `json:"from_chunk"`
	To       int   `json:"to_chunk"`
	Tensors  int   `json:"tensors"`
	Bytes    int64 `json:"bytes"` // of a microbatch
	UnderWay int   `json:"under_way"`
}

type ownUnit struct {
	Name     string  `json:"name"`
	Chunk    int     `json:"chunk"`
	Rank     int     `json:"rank"`
	FLOPsPct float64 `json:"flops_pct"` // its share of a forward
}

// planOwn tells how such a configuration's model is cut.
func (a *app) planOwn(cmd *cobra.Command, cfg *config.Config, d drawing) error {
	for _, name := range []string{"devices", "memory-gib", "latency-us", "bandwidth-gbps", "check", "pairs", "layer-costs", "save-costs", "seconds"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return usagef("--%s: what layers take is measured for the families gpt2 and llama, and not for %q; leave it out", name, cfg.Model.Family)
		}
	}
	a.working = true
	b, err := plan.Resolve(cfg, nil)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	r, err := newOwnPlan(b)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	return d.write(a, func(w io.Writer) error { return r.draw(w, a, b, d) })
}

// draw writes a format. What is drawn is the table, played by the layers' own figures.
func (r *ownPlan) draw(w io.Writer, a *app, b *plan.Plan, d drawing) error {
	switch d.format {
	case "json":
		text, err := json.MarshalIndent(r, "", "  ")
		if err == nil {
			_, err = w.Write(append(text, '\n'))
		}
		return err
	case "csv":
		_, err := io.WriteString(w, b.Table().CSV())
		return err
	case "comms":
		return writeCommunication(w, b.Table())
	case "ascii":
		if err := r.text(w); err != nil {
			return err
		}
	}
	table, m := b.Table(), scheduler.Machine{Costs: b.Costs()}
	timeline, err := m.Simulate(table)
	if bound := b.DynamicBound(); err == nil && bound > 0 {
		table, _, timeline, err = m.PlayDynamic(table, bound)
	}
	if err != nil {
		return err
	}
	chart := draw.FromTimeline(table, timeline)
	chart.Facts = append(chart.Facts, draw.Fact{Label: "layout", Value: r.Layout}, draw.Fact{Label: "costs", Value: "by what layers say of their operations; 1 is the mean forward of a chunk"})
	return drawCharts(w, a, d, chart)
}

func newOwnPlan(b *plan.Plan) (*ownPlan, error) {
	cfg, t, m := b.Config(), b.Table(), b.Model()
	r := &ownPlan{Family: m.Config.Family, Schedule: cfg.Pipeline.Schedule, Stages: cfg.Pipeline.Stages, Chunks: cfg.Pipeline.Chunks,
		Microbatches: cfg.Batch.Sequences / cfg.Batch.Microbatch, Microbatch: cfg.Batch.Microbatch, Layout: b.Layout().String(), IdealBubblePct: 100 * b.BubbleFraction(),
		WholeBackward: append([]string{}, m.WholeLayers()...)}
	names, flops, all := m.Names(), m.FLOPs(1), 0.0
	for _, f := range flops {
		all += f
	}
	i := 0
	for chunk, symbols := range b.Layout().Chunks {
		for range symbols {
			r.Layers = append(r.Layers, ownUnit{Name: names[i], Chunk: chunk, Rank: t.RankOf(chunk), FLOPsPct: 100 * flops[i] / max(all, 1)})
			i++
		}
	}
	for _, row := range t.Ranks {
		for _, a := range row {
			r.splits = r.splits || a.Type == scheduler.W
		}
	}
	r.Skips = []ownSkip{}
	for k, s := range t.Skips {
		tensors, bytes := b.SkipBytes(k)
		r.Skips = append(r.Skips, ownSkip{s.From, s.To, tensors, bytes, b.Report().Credits.OfSkip(scheduler.ForwardEdge, k)})
	}
	var err error
	r.TensorBytes, err = b.MemoryBytes()
	return r, err
}

func (r *ownPlan) text(out io.Writer) error {
	var b strings.Builder
	print := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	print("%s: %s × %s, %s of %s, layout %s, ideal bubble %.1f %%\n", r.Schedule, plural(r.Stages, "stage"), plural(r.Chunks, "chunk"),
		plural(r.Microbatches, "microbatch"), plural(r.Microbatch, "sample"), r.Layout, r.IdealBubblePct)
	var bytes []string
	for _, n := range r.TensorBytes {
		bytes = append(bytes, term.Bytes(n))
	}
	print("memory of the ranks' tensors: %s\n\n", strings.Join(bytes, ", "))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "LAYER\tCHUNK\tRANK\tSHARE OF WORK")
	for _, l := range r.Layers {
		_, e := fmt.Fprintf(w, "%s\t%d\t%d\t%.1f %%\n", term.OneLine(l.Name), l.Chunk, l.Rank, l.FLOPsPct)
		err = errors.Join(err, e)
	}
	err = errors.Join(err, w.Flush())
	for i, s := range r.Skips {
		if i == 0 {
			print("\n")
		}
		print("skip from chunk %d to chunk %d: %s of %s in all for a microbatch, at most %d under way\n", s.From, s.To, plural(s.Tensors, "tensor"), term.Bytes(s.Bytes), s.UnderWay)
	}
	print("\nThe share of work is what layers say of their operations; their times are not measured.\n")
	if len(r.WholeBackward) > 0 {
		print("Whole backward: %s. Input and weight gradients are computed together there", term.OneLine(strings.Join(r.WholeBackward, ", ")))
		if r.splits {
			print(", so that for these layers the weight gradients which %s puts off gain nothing", r.Schedule)
		}
		print(".\n")
	}
	print("\n")
	if err == nil {
		_, err = io.WriteString(out, b.String())
	}
	return err
}
