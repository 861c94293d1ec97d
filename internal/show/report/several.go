package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/chart"
	"github.com/troupe-ml/troupe/telemetry"
)

//go:embed several.html
var severalHTML string

var severalTemplate = templateOf(severalHTML)

// several has the values of the template of a page that compares runs.
type several struct {
	Title, Policy string
	Style         template.CSS
	Remarks       []string
	Head          []string
	Rows          [][]string
	Names         []string
	Keys          []KeyRow
	Charts        []template.HTML
	CurvesSay     string
	Notes         []string
}

// Pages writes a page that compares runs: their results, the keys that differ, and their curves over each other. Like Page, it needs
// no other file and no network.
func Pages(w io.Writer, runs []*Run) error {
	t := Tabulate(runs)
	p := &several{Title: fmt.Sprintf("Comparison of %s", words.Plural(len(runs), "run")), Policy: noScript,
		Style: template.CSS(chart.Style + pageStyle)}
	for _, r := range runs {
		p.Names = append(p.Names, clean(r.Path))
		for _, note := range r.Notes {
			p.Notes = append(p.Notes, clean(r.Path+": "+note))
		}
	}
	for _, text := range t.Remarks {
		p.Remarks = append(p.Remarks, clean(strings.ToUpper(text[:1])+text[1:]+"."))
	}
	p.tabulate(t)
	if err := p.draw(runs); err != nil {
		return err
	}
	var out bytes.Buffer // writes nothing if the template fails
	if err := severalTemplate.Execute(&out, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	_, err := out.WriteTo(w)
	return err
}

func (p *several) tabulate(t *Table) {
	p.Head = []string{"Run", "Step", "Last validation", "Best validation", "at step", "Loss", "Tokens/s", "Time of all steps", "Learning rate"}
	if t.Vocabs {
		p.Head = append(p.Head, "Bits per byte")
	}
	number := func(v float64, how func(float64) string) string {
		if math.IsNaN(v) {
			return "–"
		}
		return how(v)
	}
	for _, row := range t.Rows {
		at := "–"
		if row.BestStep >= 0 {
			at = words.Count(int64(row.BestStep))
		}
		cells := []string{clean(row.Path), words.Count(int64(row.Step)), number(row.Last, decimal), number(row.Best, decimal), at,
			number(row.Loss, decimal), number(row.TokensPerS, words.Short), words.Duration(row.Took),
			number(row.LR, func(v float64) string { return fmt.Sprintf("%.4g", v) })}
		if t.Vocabs {
			cells = append(cells, number(row.BitsPerByte, decimal))
		}
		p.Rows = append(p.Rows, cells)
	}
	for _, k := range t.Keys {
		values := make([]string, len(k.Values))
		for i, v := range k.Values {
			values[i] = clean(v)
		}
		p.Keys = append(p.Keys, KeyRow{k.Key, values})
	}
}

// draw draws the runs' curves over each other.
func (p *several) draw(runs []*Run) error {
	if n := len(runs); n > chart.LimitLines {
		p.CurvesSay = fmt.Sprintf("The curves show the first %d of %d runs.", chart.LimitLines, n)
	}
	for _, name := range []string{"val_loss", "loss", "lr", "grad_norm", "tokens_per_s", "peak_pct"} {
		f := telemetry.FigureOf(name)
		c := chart.Chart{ID: strings.ReplaceAll(name, "_", "-"), Title: f.Title, Unit: string(f.Unit), Zero: f.Zero}
		for _, r := range runs {
			one := &page{run: r}
			c.Lines = append(c.Lines, one.curve(name, clean(r.Path), 1, f.Sparse)...)
		}
		if len(c.Lines) == 0 {
			continue
		}
		drawn, err := drawn(&c)
		if err != nil {
			return err
		}
		p.Charts = append(p.Charts, drawn)
	}
	return nil
}
