package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/show/draw"
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

// planOwn says how a model that is no language model is spread over the stages. Its layers are
// not measured: their costs are what they say, or follow from their parameters.
func (a *app) planOwn(cmd *cobra.Command, cfg *config.Config, d drawing) error {
	if err := idle(cmd, "with a model that is no language model, whose layers are not measured",
		append([]string{"device"}, measuringFlags...)...); err != nil {
		return err
	}
	a.working = true
	p, err := plan.Resolve(cfg, nil)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	table, m := p.Table(), scheduler.Machine{Costs: p.Costs()}
	timeline, err := m.Simulate(table)
	if err != nil {
		return err
	}
	return d.write(a, func(w io.Writer) error {
		switch d.format {
		case "csv":
			_, err := io.WriteString(w, table.CSV())
			return err
		case "comms":
			return writeCommunication(w, table)
		case "json":
			return draw.Summary(w, table, p.Report(), timeline, false)
		case "ascii":
			text, err := ownText(p)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
		}
		chart := draw.FromTimeline(table, timeline)
		chart.Facts = append(chart.Facts, draw.Fact{Label: "layout", Value: p.Layout().String()},
			draw.Fact{Label: "costs", Value: "estimates by arithmetic; 1 is the mean forward of a chunk"})
		return drawCharts(w, a, d, chart)
	})
}

// ownText lists what each stage has.
func ownText(p *plan.Plan) (string, error) {
	bytes, err := p.MemoryBytes()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	names, weights := p.Model().Names(), p.Parameters()
	fmt.Fprintf(&b, "model     %s, %s parameters in %s\n", p.Config().Model.Family, words.Count(p.Model().Parameters()),
		words.Plural(len(names), "layer"))
	for r := range p.Table().NumRanks() {
		fmt.Fprintf(&b, "stage %-3d %s parameters, %.1f MiB\n", r, words.Count(weights[r]), float64(bytes[r])/(1<<20))
		for _, c := range p.Chunks(r) {
			fmt.Fprintf(&b, "  chunk %-2d %s\n", c.Chunk, strings.Join(names[c.First:c.Last], " "))
		}
	}
	for k, s := range p.Table().Skips {
		tensors, size := p.SkipBytes(k)
		fmt.Fprintf(&b, "skip      from chunk %d to chunk %d: %s, %.1f KiB a microbatch, at most %d under way\n", s.From, s.To,
			words.Plural(tensors, "tensor"), float64(size)/1024, p.Report().Credits.OfSkip(scheduler.ForwardEdge, k))
	}
	if whole := p.Model().WholeLayers(); len(whole) > 0 {
		fmt.Fprintf(&b,
			"whole     %s: input and weight gradients are computed together, so a schedule that puts weight gradients off gains nothing by these layers\n", strings.Join(whole, " "))
	}
	return b.String() + "\n", nil
}
