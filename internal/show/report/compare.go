package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/telemetry"
)

// Difference describes how two runs differ.
type Difference struct {
	A, B    Side
	Config  []config.Change // differing keys of the resolved configurations; nil: no key differs, or NoConfig
	Data    Agreement       // whether both have the same data
	Kernels Agreement       // whether both use the same kernels, which decide the exact bits
	Figures []FigureDifference
	Speed   []SpeedDifference
	// NoConfig means that a configuration is missing, so that the configurations were not compared.
	NoConfig bool
}

// Side is one of two runs that are compared.
type Side struct {
	Path       string
	Name       string
	Step       int // last known step
	Steps      int // run.steps; 0: not known
	Rows       int // rows of its metrics
	Checkpoint string
	Notes      []string
}

// Agreement says whether a property of both runs is equal.
type Agreement struct {
	Known bool // it is known for both runs
	Same  bool
	Text  string // its value, how it differs, or why it is not known
}

// FigureDifference compares a metric step by step.
type FigureDifference struct {
	Name         string
	Both         int   // steps that have it in both runs
	Equal        int   // of these, the bit-identical ones
	OnlyA, OnlyB int   // steps that only one run has, up to the end of the shorter run
	First        *Pair // the first step whose bits differ; nil: none
	Largest      *Pair // the step with the largest difference; nil: none
	Last         *Pair // the last step that has it in both runs; nil: none
	EndA, EndB   int   // the last step with it in each run
}

// Pair holds the values of a metric in both runs at a step; NaN: null in the file.
type Pair struct {
	Step int
	A, B float64
}

// SpeedDifference compares the typical values of a metric that depends on the machine.
type SpeedDifference struct {
	Name string  // name of the metric; the values are medians, or maxima of sizes
	A, B float64 // NaN: no values
}

// Ratio returns B divided by A; NaN: not known.
func (s SpeedDifference) Ratio() float64 {
	if s.A == 0 {
		return math.NaN()
	}
	return s.B / s.A
}

// Compare compares two runs.
func Compare(a, b *Run) *Difference {
	d := &Difference{A: sideOf(a), B: sideOf(b)}
	if d.NoConfig = a.Config == nil || b.Config == nil; !d.NoConfig {
		d.Config = config.Diff(a.Config, b.Config)
	}
	d.Data, d.Kernels = compareData(a, b), compareKernels(a, b)
	for _, name := range names(a, b) {
		x, y := figureOf(a, name), figureOf(b, name)
		if f := telemetry.FigureOf(name); f != nil && f.Machine {
			d.Speed = append(d.Speed, SpeedDifference{name, typical(name, x.values), typical(name, y.values)})
		} else {
			d.Figures = append(d.Figures, compareFigure(name, x, y, min(lastStep(a), lastStep(b))))
		}
	}
	return d
}

func sideOf(r *Run) Side {
	s := Side{Path: r.Path, Name: r.Name(), Step: r.Step(), Checkpoint: r.Checkpoint, Notes: r.Notes}
	if r.Config != nil {
		s.Steps = r.Config.Run.Steps
	}
	if r.History != nil {
		s.Rows = r.History.Len()
	}
	return s
}

// names returns the metrics that at least one run has, in the order of the first run.
func names(a, b *Run) []string {
	var all []string
	for _, r := range []*Run{a, b} {
		if r.History == nil {
			continue
		}
		for _, name := range r.History.Names() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// figure is a series up to Run.UpTo.
type figure struct {
	steps  []int
	values []float64
}

func figureOf(r *Run, name string) (f figure) {
	if r.History == nil {
		return f
	}
	f.steps, f.values = r.History.Figures(name)
	if r.UpTo >= 0 {
		n, _ := slices.BinarySearch(f.steps, r.UpTo+1)
		f.steps, f.values = f.steps[:n], f.values[:n]
	}
	return f
}

// lastStep returns the last step of a run's metrics up to Run.UpTo.
func lastStep(r *Run) int {
	if r.History == nil {
		return 0
	}
	last, ok := r.History.Last()
	switch {
	case !ok:
		return 0
	case r.UpTo >= 0:
		return min(last.Step, r.UpTo)
	}
	return last.Step
}

// compareFigure compares two series up to the end of the shorter run.
func compareFigure(name string, a, b figure, end int) FigureDifference {
	d := FigureDifference{Name: name}
	if n := len(a.steps); n > 0 {
		d.EndA = a.steps[n-1]
	}
	if n := len(b.steps); n > 0 {
		d.EndB = b.steps[n-1]
	}
	for i, j := 0, 0; i < len(a.steps) || j < len(b.steps); {
		switch {
		case j == len(b.steps) || i < len(a.steps) && a.steps[i] < b.steps[j]:
			if a.steps[i] <= end {
				d.OnlyA++
			}
			i++
		case i == len(a.steps) || b.steps[j] < a.steps[i]:
			if b.steps[j] <= end {
				d.OnlyB++
			}
			j++
		default:
			d.pair(Pair{a.steps[i], a.values[i], b.values[j]})
			i, j = i+1, j+1
		}
	}
	return d
}

func (d *FigureDifference) pair(p Pair) {
	d.Both++
	d.Last = &p
	if math.Float64bits(p.A) == math.Float64bits(p.B) || math.IsNaN(p.A) && math.IsNaN(p.B) {
		d.Equal++
		return
	}
	if d.First == nil {
		d.First = &p
	}
	if apart := math.Abs(p.A - p.B); !math.IsNaN(apart) && (d.Largest == nil || apart > math.Abs(d.Largest.A-d.Largest.B)) {
		d.Largest = &p
	}
}

// typical returns the median of a metric, or the maximum of a size; NaN: no values.
func typical(name string, values []float64) float64 {
	numbers := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(numbers) == 0 {
		return math.NaN()
	}
	if f := telemetry.FigureOf(name); f != nil && f.Unit == telemetry.Bytes {
		return slices.Max(numbers)
	}
	slices.Sort(numbers)
	n := len(numbers)
	return numbers[(n-1)/2]/2 + numbers[n/2]/2
}

func compareData(a, b *Run) Agreement {
	for _, r := range []*Run{a, b} {
		if r.State == nil || r.State.Data.Train.SHA256 == "" {
			return Agreement{Text: fmt.Sprintf("not known for %s: only a checkpoint records it", r.Path)}
		}
	}
	x, y := a.State.Data, b.State.Data
	var parts []string
	if x.Train.Difference(y.Train) != "" {
		parts = append(parts, fmt.Sprintf("training data: A has %s, B %s", identity(x.Train), identity(y.Train)))
	}
	if differ := x.Val != nil && y.Val != nil && x.Val.Difference(*y.Val) != ""; differ || (x.Val == nil) != (y.Val == nil) {
		parts = append(parts, fmt.Sprintf("validation data: A has %s, B %s", validation(x.Val), validation(y.Val)))
	}
	if len(parts) > 0 {
		return Agreement{Known: true, Text: strings.Join(parts, "; ")}
	}
	text := identity(x.Train)
	if x.Val != nil {
		text += "; validation data: " + identity(*x.Val)
	}
	return Agreement{Known: true, Same: true, Text: text}
}

// validation describes the validation data.
func validation(id *data.Identity) string {
	if id == nil {
		return "a part of the training data"
	}
	return identity(*id)
}

// identity describes data.
func identity(id data.Identity) string {
	of := fmt.Sprintf("%d files", id.Files)
	switch id.Files {
	case 1:
		of = "1 file"
	case 0:
		of = fmt.Sprintf("%d samples", id.Samples)
	}
	sampled := ""
	if id.Sampled {
		sampled = " of sampled blocks"
	}
	return fmt.Sprintf("%s, %d bytes, SHA-256%s %.12s…", of, id.Bytes, sampled, id.SHA256)
}

func compareKernels(a, b *Run) Agreement {
	for _, r := range []*Run{a, b} {
		if r.State == nil || r.State.Kernels == "" {
			return Agreement{Text: fmt.Sprintf("not known for %s: only a checkpoint records it", r.Path)}
		}
	}
	if x, y := a.State.Kernels, b.State.Kernels; x != y {
		return Agreement{Known: true, Text: fmt.Sprintf("A %s, B %s", x, y)}
	}
	return Agreement{Known: true, Same: true, Text: a.State.Kernels}
}
