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

// curve makes a line of a series, multiplied by a factor; nil: the run does not have the series.
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
		if b.Nulls > 0 && b.N > b.Nulls { // shows a gap
			l.Points = append(l.Points, chart.At(b.X, math.NaN()))
		}
		l.Points = append(l.Points, chart.Point{X: b.X, Y: b.Mean * factor, Low: b.Min * factor, High: b.Max * factor})
	}
	if len(l.Points) == 0 {
		return nil
	}
	return []chart.Line{l}
}

// scale returns the unit of a metric's chart and the factor to convert to it.
func (p *page) scale(f *telemetry.Figure) (factor float64, unit string) {
	switch f.Unit {
	case telemetry.Bytes:
		return byteUnit(figureOf(p.run, f.Name).values)
	case telemetry.TokensPerSecond:
		return 1, p.unit() + "/s"
	}
	return 1, string(f.Unit)
}

// drawCurves draws the charts of all metrics that the run has.
func (p *page) drawCurves() error {
	marks, signs := p.chartMarks()
	draw := func(c chart.Chart) error {
		c.Marks = marks
		drawn, err := drawn(&c)
		p.Charts = append(p.Charts, drawn)
		return err
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
		if f.Name == "loss" {
			c.Lines = append(c.Lines, p.setLosses()...)
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
		if err := draw(chart.Chart{ID: "rank-memory", Title: "Peak tensor memory by rank", Unit: unit, Zero: true,
			Lines: lines}); err != nil {
			return err
		}
	}
	for i, name := range p.metrics() {
		if i == limitMetrics {
			p.Notes = append(p.Notes, fmt.Sprintf("the page shows the first %d of %d metrics of the model's own layers", limitMetrics,
				len(p.metrics())))
			break
		}
		c := chart.Chart{ID: fmt.Sprintf("metric-%d", i), Title: name}
		c.Lines = append(p.curve(history.Metrics+name, "training", 1, false), p.curve(history.ValMetrics+name, "validation", 1, true)...)
		if err := draw(c); err != nil {
			return err
		}
	}
	if p.run.History != nil && p.run.History.Len() > limitPoints {
		p.CurvesSay = "A line shows means of neighboring steps; the band around it shows their range."
	}
	p.CurvesSay = strings.TrimSpace(p.CurvesSay + " " + signs)
	return nil
}

// setLosses returns the lines of the losses of further validation sets, up to those that a chart can tell apart.
func (p *page) setLosses() (lines []chart.Line) {
	if p.run.History == nil {
		return nil
	}
	for _, name := range p.run.History.Names() {
		if set, ok := strings.CutPrefix(name, history.ValLosses); ok && len(lines) < chart.LimitLines/2 {
			lines = append(lines, p.curve(name, "validation: "+set, 1, true)...)
		}
	}
	return lines
}

// drawn draws a chart over steps.
func drawn(c *chart.Chart) (template.HTML, error) {
	c.Across, c.Log = "step", !c.Zero && wide(c.Lines)
	var out bytes.Buffer
	err := c.Write(&out)
	return template.HTML(out.String()), err // package chart has escaped it
}

// wide reports whether the values of lines span so much that they need a log scale.
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

// metrics returns the names of the metrics that the model's own layers report.
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

// signs are the letters of events in charts.
var signs = []struct{ kind, sign, text string }{
	{telemetry.MarkResume, "C", "resumed from a checkpoint"},
	{telemetry.MarkRestart, "R", "restarted"},
	{telemetry.MarkReplace, "W", "failed worker replaced"},
	{telemetry.MarkStall, "S", "stalled"},
	{telemetry.MarkRate, "L", "learning rate changed"},
}

// chartMarks returns the events for the charts, and a legend of their letters.
func (p *page) chartMarks() (marks []chart.Mark, says string) {
	var parts []string
	for _, m := range p.marks {
		if m.Kind == telemetry.MarkCheckpoint {
			if len(parts) == 0 {
				parts = append(parts, "Ticks on the X axis are checkpoints.")
			}
			marks = append(marks, chart.Mark{X: float64(m.Step), Text: "checkpoint"})
		}
	}
	if n := len(marks); n > chart.LimitMarks/2 { // keep an even selection, with room for the letters
		every := (n + chart.LimitMarks/2 - 1) / (chart.LimitMarks / 2)
		kept := marks[:0]
		for i := every - 1; i < n; i += every {
			kept = append(kept, marks[i])
		}
		marks = kept
		parts[0] = fmt.Sprintf("Ticks on the X axis are checkpoints (every %dth is shown).", every)
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

// byteUnit returns the unit of sizes and the factor to convert to it.
func byteUnit(bytes []float64) (factor float64, unit string) {
	const mib, gib = 1 << 20, 1 << 30
	if len(bytes) > 0 && slices.Max(bytes) >= gib {
		return 1.0 / gib, "GiB"
	}
	return 1.0 / mib, "MiB"
}

// idealBubble returns a line at the ideal bubble: that of the traced step's table at unit costs.
func (p *page) idealBubble(measured []chart.Point) []chart.Line {
	if p.step == nil {
		return nil
	}
	played, err := scheduler.Simulate(p.step.Table, scheduler.UnitCosts)
	if err != nil {
		return nil // drawPipeline reports it
	}
	ideal := 100 * played.BubbleFraction
	return []chart.Line{{Name: "ideal (equal costs)", Points: []chart.Point{chart.At(measured[0].X, ideal),
		chart.At(measured[len(measured)-1].X, ideal)}}}
}

// rankMemory returns the tensor memory of each rank; of many ranks, of those with the most and the least.
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
		add(fmt.Sprintf("largest of %d ranks", ranks), func(bytes []int64) int64 { return slices.Max(bytes) })
		add("smallest", func(bytes []int64) int64 { return slices.Min(bytes) })
	}
	return lines, unit
}

// thinned returns a line with an even selection of at most most+1 points.
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

// layerRow is a row of the table of layers.
type layerRow struct {
	Name                   string
	Stage                  int
	Params                 string
	Weight, Grad           string
	WeightSpark, GradSpark template.HTML
}

// drawLayers makes the table of layers and their norms.
func (p *page) drawLayers() error {
	n := len(p.stats)
	if n == 0 || len(p.stats[n-1].Layers) == 0 {
		return nil
	}
	last := p.stats[n-1]
	p.LayersSay = fmt.Sprintf("Norms at step %s. The curves show %s.", words.Count(int64(last.Step)),
		words.Plural(n, "recorded step"))
	shown := last.Layers
	if len(shown) > limitLayers {
		p.LayersSay += fmt.Sprintf(" The table has the first %d of %d layers.", limitLayers, len(shown))
		shown = shown[:limitLayers]
	}
	for i, l := range shown {
		row := layerRow{Name: clean(l.Name), Stage: l.Stage, Params: words.Count(l.Params), Weight: norm(l.WeightNorm), Grad: norm(l.GradNorm)}
		for _, of := range []struct {
			to   *template.HTML
			name string
			norm func(telemetry.LayerStats) *float64
		}{
			{&row.WeightSpark, "weight norm of " + l.Name, func(l telemetry.LayerStats) *float64 { return l.WeightNorm }},
			{&row.GradSpark, "gradient norm of " + l.Name, func(l telemetry.LayerStats) *float64 { return l.GradNorm }},
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
		return "NaN"
	}
	return fmt.Sprintf("%.4g", *v)
}
