package cli

import (
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/term"
	"github.com/troupe-ml/troupe/scheduler"
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
	splits         bool      // the schedule has input and weight gradients apart
}

type ownUnit struct {
	Name     string  `json:"name"`
	Chunk    int     `json:"chunk"`
	Rank     int     `json:"rank"`
	FLOPsPct float64 `json:"flops_pct"` // its share of a forward
}

// planOwn tells how such a configuration's model is cut.
func (a *app) planOwn(cmd *cobra.Command, cfg *config.Config, d drawing) error {
	for _, name := range []string{"devices", "memory-gib", "latency-us", "bandwidth-gbps", "check", "pairs", "layer-costs", "save-costs", "seconds", "out"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
			return usagef("--%s: what layers take is measured for the families gpt2 and llama, and not for %q; leave it out", name, cfg.Model.Family)
		}
	}
	if d.format != "ascii" && d.format != "json" {
		return usagef("--format %s: for the family %q there are ascii and json", d.format, cfg.Model.Family)
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
	if d.format == "json" {
		return a.json(r)
	}
	return r.text(a)
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
	var err error
	r.TensorBytes, err = b.MemoryBytes()
	return r, err
}

func (r *ownPlan) text(a *app) error {
	a.printf("%s: %s × %s, %s of %s, layout %s, ideal bubble %.1f %%\n", r.Schedule, plural(r.Stages, "stage"), plural(r.Chunks, "chunk"),
		plural(r.Microbatches, "microbatch"), plural(r.Microbatch, "sample"), r.Layout, r.IdealBubblePct)
	var bytes []string
	for _, n := range r.TensorBytes {
		bytes = append(bytes, term.Bytes(n))
	}
	a.printf("memory of the ranks' tensors: %s\n\n", strings.Join(bytes, ", "))
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "LAYER\tCHUNK\tRANK\tSHARE OF WORK")
	for _, l := range r.Layers {
		_, e := fmt.Fprintf(w, "%s\t%d\t%d\t%.1f %%\n", term.OneLine(l.Name), l.Chunk, l.Rank, l.FLOPsPct)
		err = errors.Join(err, e)
	}
	err = errors.Join(err, w.Flush())
	a.printf("\nThe share of work is what layers say of their operations; their times are not measured.\n")
	if len(r.WholeBackward) > 0 {
		a.printf("Whole backward: %s. Input and weight gradients are computed together there", term.OneLine(strings.Join(r.WholeBackward, ", ")))
		if r.splits {
			a.printf(", so that for these layers the weight gradients which %s puts off gain nothing", r.Schedule)
		}
		a.printf(".\n")
	}
	return err
}
