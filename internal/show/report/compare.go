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

// Difference is how two runs differ.
type Difference struct {
	A, B    Side
	Config  []config.Change // of the resolved configurations; nil: none differs, or NoConfig
	Data    Agreement       // of the content of the data
	Kernels Agreement       // of the device's path, which decides bits
	Figures []FigureDifference
	Speed   []SpeedDifference
	// NoConfig: a configuration isn't known, so they could not be compared.
	NoConfig bool
}

// Side is one of two runs that are compared.
type Side struct {
	Path       string
	Name       string
	Step       int // the last one that is known of
	Steps      int // that there are to be; 0: not known
	Rows       int // of its metrics
	Checkpoint string
	Notes      []string
}

// Agreement says whether something is the same.
type Agreement struct {
	Known bool // on both sides
	Same  bool
	Text  string // what it is, or how it differs, or why it is not known
}

// FigureDifference is how a figure differs from step to step.
type FigureDifference struct {
	Name         string
	Both         int   // steps that have it in both
	Equal        int   // of these, those that are equal to the bit
	OnlyA, OnlyB int   // steps that one has, up to the end of the shorter run
	First        *Pair // the first step whose bits differ; nil: none
	Largest      *Pair // of the differences between numbers; nil: there are none
	Last         *Pair // the last step that both have it at; nil: none
	EndA, EndB   int   // the last step with it
}

// Pair is a figure's two values at a step; NaN: it is null in the file.
type Pair struct {
	Step int
	A, B float64
}

// SpeedDifference is how the typical value of a figure differs, which no two runs have the same.
type SpeedDifference struct {
	Name string  // of a figure that depends on the machine: medians, or of sizes the largest
	A, B float64 // NaN: there is none
}

// Ratio is B by A; NaN: it is not known.
func (s SpeedDifference) Ratio() float64 {
	if s.A == 0 {
		return math.NaN()
	}
	return s.B / s.A
}

// Compare compares what is known of two runs.
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

// names are the figures that one run or both have, in the order of the first.
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

// figure is a series up to the step that counts.
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

// lastStep is the last one in a run's metrics that counts.
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

// compareFigure goes through two series together, up to the end of the shorter run.
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

// typical is the median of the numbers of a figure, or the largest of a size; NaN: there are none.
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
			return Agreement{Text: fmt.Sprintf("not known of %s: a checkpoint has it", r.Path)}
		}
	}
	x, y := a.State.Data, b.State.Data
	var parts []string
	if x.Train.Difference(y.Train) != "" {
		parts = append(parts, fmt.Sprintf("to train on A has %s, B %s", identity(x.Train), identity(y.Train)))
	}
	if differ := x.Val != nil && y.Val != nil && x.Val.Difference(*y.Val) != ""; differ || (x.Val == nil) != (y.Val == nil) {
		parts = append(parts, fmt.Sprintf("to validate on A has %s, B %s", validation(x.Val), validation(y.Val)))
	}
	if len(parts) > 0 {
		return Agreement{Known: true, Text: strings.Join(parts, "; ")}
	}
	text := identity(x.Train)
	if x.Val != nil {
		text += "; to validate on, " + identity(*x.Val)
	}
	return Agreement{Known: true, Same: true, Text: text}
}

// validation says what data to validate on are.
func validation(id *data.Identity) string {
	if id == nil {
		return "a part of these"
	}
	return identity(*id)
}

// identity says what data are.
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
		sampled = " of blocks of it"
	}
	return fmt.Sprintf("%s, %d bytes, SHA-256%s %.12s…", of, id.Bytes, sampled, id.SHA256)
}

func compareKernels(a, b *Run) Agreement {
	for _, r := range []*Run{a, b} {
		if r.State == nil || r.State.Kernels == "" {
			return Agreement{Text: fmt.Sprintf("not known of %s: a checkpoint has it", r.Path)}
		}
	}
	if x, y := a.State.Kernels, b.State.Kernels; x != y {
		return Agreement{Known: true, Text: fmt.Sprintf("A %s, B %s", x, y)}
	}
	return Agreement{Known: true, Same: true, Text: a.State.Kernels}
}
