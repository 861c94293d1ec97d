package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/show/report"
)

// runLetter names a run of a comparison: A, B, … Z, then 27, 28, …
func runLetter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return fmt.Sprint(i + 1)
}

// writeTable writes the results of runs for people, a row for each.
func writeTable(w io.Writer, t *report.Table) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(tw, format+"\n", args...) }
	bits := ""
	if t.Vocabs {
		bits = "\tBITS/BYTE"
	}
	row("RUN\tSTEP\tLAST VAL\tBEST VAL\tLOSS%s\tSPEED\tTIME\tLR", bits)
	for i, r := range t.Rows {
		best := loss4(r.Best)
		if r.BestStep >= 0 && r.BestStep != r.LastStep {
			best += fmt.Sprintf(" at %d", r.BestStep)
		}
		if t.Vocabs {
			bits = "\t" + loss4(r.BitsPerByte)
		}
		speed := "-"
		if !math.IsNaN(r.TokensPerS) {
			speed = words.Short(r.TokensPerS) + "/s"
		}
		row("%s  %s\t%s\t%s\t%s\t%s%s\t%s\t%s\t%s", runLetter(i), words.OneLine(r.Path), progress(r.Side), loss4(r.Last), best, loss4(r.Loss),
			bits,
			speed, words.Duration(r.Took), shortNumber(r.LR))
	}
	_ = tw.Flush() // the caller's writer keeps the error
	for _, text := range t.Remarks {
		_, _ = fmt.Fprintf(w, "note: %s\n", words.OneLine(text))
	}
	for i, r := range t.Rows {
		for _, note := range r.Notes {
			_, _ = fmt.Fprintf(w, "%s: %s\n", runLetter(i), words.OneLine(note))
		}
	}
}

// writeKeys writes the keys that differ.
func writeKeys(w io.Writer, t *report.Table) {
	if len(t.Keys) == 0 {
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(tw, "\nKEY")
	for i := range t.Rows {
		_, _ = fmt.Fprint(tw, "\t"+runLetter(i))
	}
	for _, k := range t.Keys {
		_, _ = fmt.Fprint(tw, "\n"+k.Key)
		for _, v := range k.Values {
			if v == "" {
				v = "-"
			}
			_, _ = fmt.Fprint(tw, "\t"+brief(v))
		}
	}
	_, _ = fmt.Fprintln(tw)
	_ = tw.Flush() // as above
}

// loss4 formats a loss.
func loss4(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.4f", v)
}

// tableJSON are the results of several runs.
type tableJSON struct {
	Runs    []rowJSON `json:"runs"`
	Config  []keyJSON `json:"config"`
	Remarks []string  `json:"remarks"`
}

type rowJSON struct {
	sideJSON
	resultJSON
}

// resultJSON has null for numbers that are not known.
type resultJSON struct {
	Loss        *float64 `json:"loss"`
	ValLoss     *float64 `json:"val_loss"`
	BestValLoss *float64 `json:"best_val_loss"`
	BestStep    *int     `json:"best_step"`
	BitsPerByte *float64 `json:"bits_per_byte"` // at the best validation loss, estimated
	TokensPerS  *float64 `json:"tokens_per_s"`
	StepsS      float64  `json:"steps_s"` // the time of all steps, in seconds
	LR          *float64 `json:"lr"`
}

// keyJSON has the values as TOML, in the order of the runs.
type keyJSON struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

func tableJSONOf(t *report.Table) tableJSON {
	j := tableJSON{Runs: []rowJSON{}, Config: []keyJSON{}, Remarks: append([]string{}, t.Remarks...)}
	for _, r := range t.Rows {
		j.Runs = append(j.Runs, rowJSON{sideJSONOf(r.Side), resultJSONOf(r)})
	}
	for _, k := range t.Keys {
		j.Config = append(j.Config, keyJSON{k.Key, slices.Clone(k.Values)})
	}
	return j
}

func resultJSONOf(r report.Row) resultJSON {
	j := resultJSON{Loss: figure(r.Loss), ValLoss: figure(r.Last), BestValLoss: figure(r.Best), BitsPerByte: figure(r.BitsPerByte),
		TokensPerS: figure(r.TokensPerS), StepsS: r.Took.Seconds(), LR: figure(r.LR)}
	if r.BestStep >= 0 {
		j.BestStep = &r.BestStep
	}
	return j
}
