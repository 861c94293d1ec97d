package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
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
		Use:   "diff A B...",
		Short: "Compare two or more runs",
		Long: `Compare runs. A, B and so on are folders of runs or of checkpoints; a run may be in progress
or have crashed. For a checkpoint, only the metrics up to its step count.

The first table has a row for each run: its step, the last and the best validation loss, the
loss of the last step, the median speed, the time of all steps and the peak learning rate.
If the vocabularies differ, it has the bits per byte at the best validation, estimated from
the training data. Notes say what makes the comparison unfair. The keys that differ follow.

For two runs, it also compares the content of their data, their kernels, their metrics step by
step, and their speed. Use that to check that two runs are bit-identical, or to find where
they start to differ. Data and kernels are recorded in checkpoints.

For each metric the table shows: how many steps both runs have, at how many of them the
values are bit-identical, the first step with a difference, the largest difference, and the
last step that both have. Speeds are compared by their medians. --json has all digits.

The exit status is 0 even if the runs differ; notes say what was missing.

See also: engine report, engine ui (draws several runs over each other).`,
		Example: `  engine diff runs/one runs/two
  engine diff runs/lr-*
  engine diff runs/one/checkpoints/step-00000100 runs/two --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return takes("A", "B")(cmd, args)
			}
			return nil
		},
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			runs, err := readRuns(args, runLetter)
			if err != nil {
				return err
			}
			switch {
			case len(runs) > 2 && asJSON:
				return a.json(tableJSONOf(report.Tabulate(runs)))
			case len(runs) > 2:
				out := &stream{w: a.people()}
				t := report.Tabulate(runs)
				writeTable(out, t)
				writeKeys(out, t)
				return out.err
			}
			d, t := report.Compare(runs[0], runs[1]), report.Tabulate(runs)
			if asJSON {
				return a.json(diffJSONOf(d, t))
			}
			return writeDiff(a.people(), d, t)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// readRuns reads the folders of runs. where names an argument in errors.
func readRuns(paths []string, where func(i int) string) (runs []*report.Run, err error) {
	var errs []error
	for i, path := range paths {
		run, err := report.Read(path)
		runs, errs = append(runs, run), append(errs, folder.Missing(err, where(i), "folder", path))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &troupe.SetupError{Err: err}
	}
	return runs, nil
}

// writeDiff writes a comparison for people.
func writeDiff(w io.Writer, d *report.Difference, t *report.Table) error {
	out := &stream{w: w}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format+"\n", args...) }
	writeTable(out, t)
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
	writeKeys(out, t)
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
	if v, err := strconv.ParseFloat(value, 64); err == nil && strings.Contains(value, ".") && len(value) > 8 {
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
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
	a, b := apartText(p.A, p.B)
	return fmt.Sprintf("step %d: %s, %s", p.Step, a, b)
}

// apartText formats two values with as few digits as show that they differ, but at least 5.
func apartText(a, b float64) (x, y string) {
	for digits := 5; ; digits++ {
		x, y = strconv.FormatFloat(a, 'g', digits, 64), strconv.FormatFloat(b, 'g', digits, 64)
		if x != y || digits >= 17 {
			return x, y
		}
	}
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
	A       rowJSON          `json:"a"`
	B       rowJSON          `json:"b"`
	Remarks []string         `json:"remarks"`
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

func diffJSONOf(d *report.Difference, t *report.Table) diffJSON {
	runs := tableJSONOf(t)
	j := diffJSON{A: runs.Runs[0], B: runs.Runs[1], Remarks: runs.Remarks, Data: agreementJSONOf(d.Data), Kernels: agreementJSONOf(d.Kernels),
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
