package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/show/report"
	"github.com/troupe-ml/troupe/telemetry"
)

func (a *app) newDiff() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two runs",
		Long: `Compare two runs: their configs, the content of their data, their kernels, their losses step
by step, and their speed. Use it to check that two runs are bit-identical, or to find where
they start to differ. A and B are folders of runs or of checkpoints; a run may be in
progress or have crashed. For a checkpoint, it compares only the metrics up to the
checkpoint's step. Data and kernels are recorded in checkpoints.

For each metric the table shows: how many steps both runs have, at how many of them the
values are bit-identical, the first step with a difference, the largest difference, and the
last step that both have. Speeds are compared by their medians.

The exit status is 0 even if the runs differ; notes say what was missing.

See also: engine report, engine ui (draws several runs over each other).`,
		Example: `  engine diff runs/one runs/two
  engine diff runs/one/checkpoints/step-00000100 runs/two --json`,
		Args:              takes("A", "B"),
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			one, errA := report.Read(args[0])
			two, errB := report.Read(args[1])
			if err := errors.Join(folder.Missing(errA, "A", "folder", args[0]), folder.Missing(errB, "B", "folder", args[1])); err != nil {
				return &troupe.SetupError{Err: err}
			}
			d := report.Compare(one, two)
			if asJSON {
				return a.json(diffJSONOf(d))
			}
			return writeDiff(a.people(), d)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// writeDiff writes a comparison for people.
func writeDiff(w io.Writer, d *report.Difference) error {
	out := &stream{w: w}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format+"\n", args...) }
	sides := []struct {
		name string
		of   report.Side
	}{{"A", d.A}, {"B", d.B}}
	for _, side := range sides {
		row("%s  %s\t%s\t%s", side.name, words.OneLine(side.of.Path), words.OneLine(side.of.Name), progress(side.of))
	}
	_ = tw.Flush() // out keeps the error
	for _, side := range sides {
		for _, note := range side.of.Notes {
			row("%s: %s", side.name, words.OneLine(note))
		}
	}
	row("")
	switch {
	case d.NoConfig:
		row("config   not compared")
	case len(d.Config) == 0:
		row("config   identical")
	default:
		row("config   %s", differs(len(d.Config)))
	}
	row("data     %s", agreement(d.Data))
	row("kernels  %s", agreement(d.Kernels))
	row("losses   %s", sameLosses(d))
	_ = tw.Flush() // as above
	if len(d.Config) > 0 {
		row("\nKEY\tA\tB")
		for _, c := range d.Config {
			row("%s\t%s\t%s", c.Key, brief(c.A), brief(c.B))
		}
		_ = tw.Flush() // as above
	}
	if len(d.Figures) > 0 {
		row("\nMETRIC\tSTEPS\tEQUAL\tFIRST DIFFERENCE\tLARGEST B - A\tLAST B - A\tONLY IN ONE")
		for _, f := range d.Figures {
			row("%s\t%d\t%d\t%s\t%s\t%s\t%s", words.OneLine(f.Name), f.Both, f.Equal, values(f.First), apart(f.Largest), apart(f.Last), alone(f))
		}
		_ = tw.Flush() // as above
	}
	if len(d.Speed) > 0 {
		row("\nSPEED\tA\tB\tB / A")
		for _, s := range d.Speed {
			show := shortNumber
			name := "median of " + s.Name
			if telemetry.FigureOf(s.Name).Unit == telemetry.Bytes {
				name, show = "largest "+s.Name, byteNumber
			}
			row("%s\t%s\t%s\t%s", name, show(s.A), show(s.B), ratio(s.Ratio()))
		}
		_ = tw.Flush() // as above
	}
	return out.err
}

// progress says how many of its steps a run has done.
func progress(s report.Side) string {
	text := fmt.Sprintf("step %d", s.Step)
	if s.Steps > 0 {
		text += fmt.Sprintf("/%d", s.Steps)
	}
	return text
}

func differs(keys int) string {
	if keys == 1 {
		return "1 key differs"
	}
	return fmt.Sprintf("%d keys differ", keys)
}

func agreement(a report.Agreement) string {
	switch {
	case !a.Known:
		return words.OneLine(a.Text)
	case a.Same:
		return "identical: " + words.OneLine(a.Text)
	}
	return "different: " + words.OneLine(a.Text)
}

// sameLosses says from which step the losses differ.
func sameLosses(d *report.Difference) string {
	i := slices.IndexFunc(d.Figures, func(f report.FigureDifference) bool { return f.Name == "loss" })
	switch {
	case i < 0 || d.Figures[i].Both == 0:
		return "not compared: the runs have no step in common"
	case d.Figures[i].First != nil:
		return fmt.Sprintf("different from step %d on", d.Figures[i].First.Step)
	}
	return fmt.Sprintf("bit-identical at all %s that both have", words.Plural(d.Figures[i].Both, "step"))
}

// brief shortens a value of a config to one line.
func brief(value string) string {
	const most = 60
	runes := []rune(words.OneLine(value))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// exact formats a value so that different values look different.
func exact(v float64) string {
	if math.IsNaN(v) {
		return "NaN"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

func values(p *report.Pair) string {
	if p == nil {
		return "-"
	}
	return fmt.Sprintf("step %d: %s, %s", p.Step, exact(p.A), exact(p.B))
}

func apart(p *report.Pair) string {
	switch {
	case p == nil:
		return "-"
	case p.A == p.B || math.IsNaN(p.A) && math.IsNaN(p.B):
		return fmt.Sprintf("0 at step %d", p.Step)
	case math.IsNaN(p.A) || math.IsNaN(p.B):
		return fmt.Sprintf("%s, %s at step %d", exact(p.A), exact(p.B), p.Step)
	}
	return fmt.Sprintf("%.3g at step %d", p.B-p.A, p.Step)
}

// alone says which steps of a metric only one run has.
func alone(f report.FigureDifference) string {
	text := ""
	add := func(format string, args ...any) {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf(format, args...)
	}
	switch {
	case f.EndA == 0 && f.Both+f.OnlyA == 0 && f.EndB > 0:
		add("A has none")
	case f.EndB == 0 && f.Both+f.OnlyB == 0 && f.EndA > 0:
		add("B has none")
	case f.EndA < f.EndB:
		add("A ends at step %d, B at %d", f.EndA, f.EndB)
	case f.EndB < f.EndA:
		add("B ends at step %d, A at %d", f.EndB, f.EndA)
	}
	if f.OnlyA > 0 {
		add("%s only in A", words.Plural(f.OnlyA, "step"))
	}
	if f.OnlyB > 0 {
		add("%s only in B", words.Plural(f.OnlyB, "step"))
	}
	if text == "" {
		return "-"
	}
	return text
}

func shortNumber(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.4g", v)
}

func byteNumber(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return words.Bytes(int64(v))
}

func ratio(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.3f", v)
}

// diffJSON is a comparison, with null for numbers that are not finite.
type diffJSON struct {
	A       sideJSON         `json:"a"`
	B       sideJSON         `json:"b"`
	Config  *[]changeJSON    `json:"config"` // null: not compared
	Data    agreementJSON    `json:"data"`
	Kernels agreementJSON    `json:"kernels"`
	Figures []figureDiffJSON `json:"figures"`
	Speed   []speedJSON      `json:"speed"`
}

type sideJSON struct {
	Path       string   `json:"path"`
	Name       string   `json:"name"`
	Step       int      `json:"step"`
	Steps      int      `json:"steps"` // 0: unknown
	Rows       int      `json:"rows"`
	Checkpoint string   `json:"checkpoint"` // "": none
	Notes      []string `json:"notes"`
}

type changeJSON struct {
	Key string `json:"key"`
	A   string `json:"a"`
	B   string `json:"b"`
}

type agreementJSON struct {
	Same   *bool  `json:"same"` // null: unknown
	Detail string `json:"detail"`
}

type figureDiffJSON struct {
	Name    string    `json:"name"`
	Both    int       `json:"both"`
	Equal   int       `json:"equal"`
	OnlyA   int       `json:"only_a"`
	OnlyB   int       `json:"only_b"`
	First   *pairJSON `json:"first_difference"`
	Largest *pairJSON `json:"largest_difference"`
	Last    *pairJSON `json:"last"`
	EndA    int       `json:"end_a"`
	EndB    int       `json:"end_b"`
}

type pairJSON struct {
	Step int      `json:"step"`
	A    *float64 `json:"a"`
	B    *float64 `json:"b"`
}

type speedJSON struct {
	Name  string   `json:"name"` // values are medians, except peak_mem_bytes: its maximum
	A     *float64 `json:"a"`
	B     *float64 `json:"b"`
	Ratio *float64 `json:"ratio"` // of B to A
}

func diffJSONOf(d *report.Difference) diffJSON {
	j := diffJSON{A: sideJSONOf(d.A), B: sideJSONOf(d.B), Data: agreementJSONOf(d.Data), Kernels: agreementJSONOf(d.Kernels),
		Figures: []figureDiffJSON{}, Speed: []speedJSON{}}
	if !d.NoConfig {
		changes := []changeJSON{}
		for _, c := range d.Config {
			changes = append(changes, changeJSON(c))
		}
		j.Config = &changes
	}
	for _, f := range d.Figures {
		j.Figures = append(j.Figures, figureDiffJSON{f.Name, f.Both, f.Equal, f.OnlyA, f.OnlyB, pairJSONOf(f.First), pairJSONOf(f.Largest),
			pairJSONOf(f.Last), f.EndA, f.EndB})
	}
	for _, s := range d.Speed {
		j.Speed = append(j.Speed, speedJSON{s.Name, figure(s.A), figure(s.B), figure(s.Ratio())})
	}
	return j
}

func sideJSONOf(s report.Side) sideJSON {
	return sideJSON{s.Path, s.Name, s.Step, s.Steps, s.Rows, s.Checkpoint, append([]string{}, s.Notes...)}
}

func agreementJSONOf(a report.Agreement) agreementJSON {
	j := agreementJSON{Detail: a.Text}
	if a.Known {
		j.Same = &a.Same
	}
	return j
}

func pairJSONOf(p *report.Pair) *pairJSON {
	if p == nil {
		return nil
	}
	return &pairJSON{p.Step, figure(p.A), figure(p.B)}
}
