package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/chart"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// curve makes a line of a series, in other units by a factor; none where the run lacks the series.
func (p *page) curve(series, name string, factor float64, dots bool) []chart.Line {
	l := chart.Line{Name: name}
	if p.run.History == nil {
		return nil
	}
	to := math.Inf(1)
	if p.run.UpTo >= 0 {
		to = float64(p.run.UpTo)
	}
	buckets := p.run.History.Series(series, history.BySteps, math.Inf(-1), to, limitPoints)
	const fewDots = 60
	l.Dots = dots && len(buckets) <= fewDots
	for _, b := range buckets {
		if b.Nulls > 0 && b.N > b.Nulls { // the gap is seen beside the numbers
			l.Points = append(l.Points, chart.At(b.X, math.NaN()))
		}
		l.Points = append(l.Points, chart.Point{X: b.X, Y: b.Mean * factor, Low: b.Min * factor, High: b.Max * factor})
	}
	if len(l.Points) == 0 {
		return nil
	}
	return []chart.Line{l}
}

// scale is the unit that a figure is drawn in, and the factor that leads to it.
func (p *page) scale(f *telemetry.Figure) (factor float64, unit string) {
	switch f.Unit {
	case telemetry.Bytes:
		return byteUnit(figureOf(p.run, f.Name).values)
	case telemetry.TokensPerSecond:
		return 1, p.unit() + "/s"
	}
	return 1, string(f.Unit)
}

// drawCurves draws the charts of the figures that there are.
func (p *page) drawCurves() error {
	marks, signs := p.chartMarks()
	draw := func(c chart.Chart) error {
		c.Across, c.Marks = "step", marks
		c.Log = !c.Zero && wide(c.Lines)
		return p.add(&c)
	}
	for i := range telemetry.Figures {
		f := &telemetry.Figures[i]
		factor, unit := p.scale(f)
		c := chart.Chart{ID: strings.ReplaceAll(f.Name, "_", "-"), Title: f.Title, Unit: strings.TrimSpace(unit + " " + f.Note), Zero: f.Zero}
		for _, l := range telemetry.Figures {
			if l.Name == f.Name && l.Chart == "" || l.Chart == f.Name {
				c.Lines = append(c.Lines, p.curve(l.Name, l.Line, factor, l.Sparse)...)
			}
		}
		if len(c.Lines) == 0 {
			continue
		}
		if f.Name == "bubble_pct" {
			c.Lines = append(c.Lines, p.idealBubble(c.Lines[0].Points)...)
		}
		if err := draw(c); err != nil {
			return err
		}
	}
	if lines, unit := p.rankMemory(); len(lines) > 0 {
		if err := draw(chart.Chart{ID: "rank-memory", Title: "Memory of tensors by rank, the most so far", Unit: unit, Zero: true,
			Lines: lines}); err != nil {
			return err
		}
	}
	for i, name := range p.metrics() {
		if i == limitMetrics {
			p.Notes = append(p.Notes, fmt.Sprintf("the model's own metrics: the first %d of %d are drawn", limitMetrics, len(p.metrics())))
			break
		}
		c := chart.Chart{ID: fmt.Sprintf("metric-%d", i), Title: name}
		c.Lines = append(p.curve(history.Metrics+name, "training", 1, false), p.curve(history.ValMetrics+name, "validation", 1, true)...)
		if err := draw(c); err != nil {
			return err
		}
	}
	if p.run.History != nil && p.run.History.Len() > limitPoints {
		p.CurvesSay = "A line goes through means of neighbouring steps; the band around it reaches from the least to the greatest."
	}
	p.CurvesSay = strings.TrimSpace(p.CurvesSay + " " + signs)
	return nil
}

func (p *page) add(c *chart.Chart) error {
	var out bytes.Buffer
	if err := c.Write(&out); err != nil {
		return err
	}
	p.Charts = append(p.Charts, template.HTML(out.String())) // package chart has escaped it
	return nil
}

// wide reports whether lines have numbers so far apart that only their logarithms are seen together.
func wide(lines []chart.Line) bool {
	const far = 40
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, pt := range l.Points {
			if pt.Low > 0 {
				low, high = min(low, pt.Low), max(high, pt.High)
			} else if pt.Low <= 0 {
				return false
			}
		}
	}
	return high/low > far
}

// metrics are the names of the model's own.
func (p *page) metrics() []string {
	if p.run.History == nil {
		return nil
	}
	var names []string
	for _, name := range p.run.History.Names() {
		for _, prefix := range []string{history.Metrics, history.ValMetrics} {
			if own, ok := strings.CutPrefix(name, prefix); ok && !slices.Contains(names, own) {
				names = append(names, own)
			}
		}
	}
	return names
}

// signs are the letters of what happened.
var signs = []struct{ kind, sign, text string }{
	{telemetry.MarkResume, "C", "resumed from a checkpoint"},
	{telemetry.MarkRestart, "R", "restarted"},
	{telemetry.MarkStall, "S", "stalled"},
	{telemetry.MarkRate, "L", "learning rate changed"},
}

// chartMarks are what happened, for the charts, and what the letters stand for.
func (p *page) chartMarks() (marks []chart.Mark, says string) {
	var parts []string
	for _, m := range p.marks {
		if m.Kind == telemetry.MarkCheckpoint {
			if len(parts) == 0 {
				parts = append(parts, "Ticks below are checkpoints.")
			}
			marks = append(marks, chart.Mark{X: float64(m.Step), Text: "checkpoint"})
		}
	}
	if n := len(marks); n > chart.LimitMarks/2 { // those spread over all, and room for the letters
		every := (n + chart.LimitMarks/2 - 1) / (chart.LimitMarks / 2)
		kept := marks[:0]
		for i := every - 1; i < n; i += every {
			kept = append(kept, marks[i])
		}
		marks = kept
		parts[0] = fmt.Sprintf("Ticks below are checkpoints, one of %d drawn.", every)
	}
	for _, s := range signs {
		n := 0
		for _, m := range p.marks {
			if m.Kind == s.kind {
				n++
				text := cmp.Or(m.Text, s.text)
				marks = append(marks, chart.Mark{X: float64(m.Step), Sign: s.sign, Text: text})
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s.", s.sign, s.text))
		}
	}
	return marks, strings.Join(parts, " ")
}

// byteUnit is the unit that sizes are told in.
func byteUnit(bytes []float64) (factor float64, unit string) {
	const mib, gib = 1 << 20, 1 << 30
	if len(bytes) > 0 && slices.Max(bytes) >= gib {
		return 1.0 / gib, "GiB"
	}
	return 1.0 / mib, "MiB"
}

// idealBubble is a line at the bubble of the traced step's table at unit costs, beside what was
// measured.
func (p *page) idealBubble(measured []chart.Point) []chart.Line {
	if p.step == nil {
		return nil
	}
	played, err := scheduler.Simulate(p.step.Table, scheduler.UnitCosts)
	if err != nil {
		return nil // drawPipeline says so
	}
	ideal := 100 * played.BubbleFraction
	return []chart.Line{{Name: "ideal, at unit costs", Points: []chart.Point{chart.At(measured[0].X, ideal),
		chart.At(measured[len(measured)-1].X, ideal)}}}
}

// rankMemory is the tensor memory of each rank; of many, of the ones that take most and least.
func (p *page) rankMemory() (lines []chart.Line, unit string) {
	ranks := 0
	var all []float64
	for _, s := range p.stats {
		ranks = max(ranks, len(s.MemBytes))
		for _, bytes := range s.MemBytes {
			all = append(all, float64(bytes))
		}
	}
	factor, unit := byteUnit(all)
	add := func(name string, of func(bytes []int64) int64) {
		l := chart.Line{Name: name}
		for _, s := range p.stats {
			if len(s.MemBytes) == ranks {
				l.Points = append(l.Points, chart.At(float64(s.Step), float64(of(s.MemBytes))*factor))
			}
		}
		lines = append(lines, thinned(l, limitPoints))
	}
	switch {
	case ranks == 0:
	case ranks <= chart.LimitLines:
		for r := range ranks {
			add(fmt.Sprintf("rank %d", r), func(bytes []int64) int64 { return bytes[r] })
		}
	default:
		add(fmt.Sprintf("rank with most of %d", ranks), func(bytes []int64) int64 { return slices.Max(bytes) })
		add("rank with least", func(bytes []int64) int64 { return slices.Min(bytes) })
	}
	return lines, unit
}

// thinned is a line of at most so many points and one more, those that are left out between the others.
func thinned(l chart.Line, most int) chart.Line {
	if n := len(l.Points); n > most {
		every := (n + most - 1) / most
		kept := make([]chart.Point, 0, most+1)
		for i := 0; i < n; i += every {
			kept = append(kept, l.Points[i])
		}
		if (n-1)%every != 0 {
			kept = append(kept, l.Points[n-1])
		}
		l.Points = kept
	}
	return l
}

// layerRow is a layer in the table.
type layerRow struct {
	Name                   string
	Stage                  int
	Params                 string
	Weight, Grad           string
	WeightSpark, GradSpark template.HTML
}

// drawLayers makes the table of the layers' norms.
func (p *page) drawLayers() error {
	n := len(p.stats)
	if n == 0 || len(p.stats[n-1].Layers) == 0 {
		return nil
	}
	last := p.stats[n-1]
	p.LayersSay = fmt.Sprintf("Norms at step %s, and from the first of %s on.", words.Count(int64(last.Step)),
		words.Plural(n, "recorded step"))
	shown := last.Layers
	if len(shown) > limitLayers {
		p.LayersSay += fmt.Sprintf(" The first %d of %d layers.", limitLayers, len(shown))
		shown = shown[:limitLayers]
	}
	for i, l := range shown {
		row := layerRow{Name: clean(l.Name), Stage: l.Stage, Params: words.Count(l.Params), Weight: norm(l.WeightNorm), Grad: norm(l.GradNorm)}
		for _, of := range []struct {
			to   *template.HTML
			name string
			norm func(telemetry.LayerStats) *float64
		}{
			{&row.WeightSpark, "norm of the weights of " + l.Name, func(l telemetry.LayerStats) *float64 { return l.WeightNorm }},
			{&row.GradSpark, "norm of the gradients of " + l.Name, func(l telemetry.LayerStats) *float64 { return l.GradNorm }},
		} {
			line := chart.Line{Name: of.name}
			for _, s := range p.stats {
				if i < len(s.Layers) {
					if v := of.norm(s.Layers[i]); v != nil {
						line.Points = append(line.Points, chart.At(float64(s.Step), *v))
					}
				}
			}
			var out bytes.Buffer
			if err := chart.Spark(&out, thinned(line, limitSparkPoints), "step"); err != nil {
				return err
			}
			*of.to = template.HTML(out.String()) // package chart has escaped it
		}
		p.Layers = append(p.Layers, row)
	}
	return nil
}

func norm(v *float64) string {
	switch {
	case v == nil:
		return "–"
	case math.IsNaN(*v):
		return "no number"
	}
	return fmt.Sprintf("%.4g", *v)
}
