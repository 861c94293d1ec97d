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

// loadPlanned reads a config to plan for. A language model's data need not exist, since only sizes matter, and whether it is documents,
// whose microbatches differ in length. Other families need their data, for the fields of a sample.
func loadPlanned(path string, sets []string) (*config.Config, error) {
	plain, err := loadConfig(path, sets)
	if err == nil && (!plain.Language() || plain.Documents()) {
		return plain, nil
	}
	sized, sizedErr := loadConfig(path, append(append([]string{}, sets...), bench.SizesOnly...))
	// If both fail, report the shorter list of mistakes: the longer one also has those of the stand-in data,
	// which the family does not use.
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

// planOwn prints how a model that is not a language model is spread over the stages. It does not measure the
// layers: they state their costs, or the costs follow from their parameters.
func (a *app) planOwn(cmd *cobra.Command, cfg *config.Config, d drawing) error {
	if err := idle(cmd, "with a model that is not a language model: its layers are not measured",
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
			draw.Fact{Label: "costs", Value: "estimated from operation counts; 1 is the mean forward of a chunk"})
		return drawCharts(w, a, d, chart)
	})
}

// ownText lists the layers and the memory of each stage.
func ownText(p *plan.Plan) (string, error) {
	bytes, err := p.MemoryBytes()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	names, weights := p.Model().Names(), p.Parameters()
	trained := ""
	if all := p.Model().Parameters(); p.Model().Trained() < all {
		trained = fmt.Sprintf(", %s of them trained,", words.Count(p.Model().Trained()))
	}
	fmt.Fprintf(&b, "model     %s, %s parameters%s in %s\n", p.Config().Model.Family, words.Count(p.Model().Parameters()), trained,
		words.Plural(len(names), "layer"))
	for r := range p.Table().NumRanks() {
		fmt.Fprintf(&b, "stage %-3d %s parameters, %.1f MiB\n", r, words.Count(weights[r]), float64(bytes[r])/(1<<20))
		for _, c := range p.Chunks(r) {
			fmt.Fprintf(&b, "  chunk %-2d %s\n", c.Chunk, strings.Join(names[c.First:c.Last], " "))
		}
	}
	before, err := p.Before()
	if err != nil {
		return "", err
	}
	if before != nil {
		fmt.Fprintf(&b, "before    the first step one process computes %s on its CPU, once, with %.1f MiB\n", before.What,
			float64(before.Bytes)/(1<<20))
	}
	for k, s := range p.Table().Skips {
		tensors, size := p.SkipBytes(k)
		fmt.Fprintf(&b, "skip      from chunk %d to chunk %d: %s, %.1f KiB per microbatch, up to %d in flight\n", s.From, s.To,
			words.Plural(tensors, "tensor"), float64(size)/1024, p.Report().Credits.OfSkip(scheduler.ForwardEdge, k))
	}
	if whole := p.Model().WholeLayers(); len(whole) > 0 {
		fmt.Fprintf(&b,
			"whole     %s: these layers compute input and weight gradients together, so a schedule that defers weight gradients gains nothing on them\n", strings.Join(whole, " "))
	}
	return b.String() + "\n", nil
}
