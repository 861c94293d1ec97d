package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// Row sums up one of the runs that a Table compares. NaN: not known.
type Row struct {
	Side
	Loss        float64 // of the last step
	Last, Best  float64 // validation losses
	LastStep    int     // of the last validation
	BestStep    int
	BitsPerByte float64 // of the best validation loss: comparable between tokenizers; estimated from the training data
	TokensPerS  float64 // median; samples if the data is not text
	Took        time.Duration
	LR          float64 // optimizer.lr
}

// KeyRow is a key that differs between runs, with its values as TOML in the order of the runs; "": the run has no configuration.
type KeyRow struct {
	Key    string
	Values []string
}

// Table compares runs by their results.
type Table struct {
	Rows    []Row
	Keys    []KeyRow
	Vocabs  bool     // the vocabularies differ: compare bits per byte
	Remarks []string // what makes a comparison of the losses unfair
}

// Tabulate compares runs.
func Tabulate(runs []*Run) *Table {
	t := &Table{}
	for _, r := range runs {
		t.Rows = append(t.Rows, rowOf(r))
	}
	t.differ(runs)
	t.remark(runs)
	return t
}

func rowOf(r *Run) Row {
	row := Row{Side: sideOf(r), Loss: math.NaN(), Last: math.NaN(), LR: math.NaN(), BitsPerByte: math.NaN(),
		Took: timeOf(r), TokensPerS: typical("tokens_per_s", figureOf(r, "tokens_per_s").values)}
	if f := figureOf(r, "loss"); len(f.values) > 0 {
		row.Loss = f.values[len(f.values)-1]
	}
	val := figureOf(r, "val_loss")
	if n := len(val.values); n > 0 {
		row.Last, row.LastStep = val.values[n-1], val.steps[n-1]
	}
	row.Best, row.BestStep = least(val)
	if r.Config != nil {
		row.LR = r.Config.Optimizer.LR
	}
	if bytes := bytesPerToken(r); bytes > 0 && row.BestStep >= 0 {
		row.BitsPerByte = row.Best / math.Ln2 / bytes
	}
	return row
}

// bytesPerToken returns the bytes of a token of text, on the average of the training files; 0: it is not known.
func bytesPerToken(r *Run) float64 {
	c, s := r.Config, r.State
	switch {
	case c == nil || s == nil || c.Data.Format != "text" || s.TrainTokens == 0:
		return 0
	case len(c.Data.Val) > 0:
		return float64(s.Data.Train.Bytes) / float64(s.TrainTokens)
	}
	return float64(s.Data.Train.Bytes) * (1 - c.Data.ValFraction) / float64(s.TrainTokens)
}

// differ lists the keys that differ between any two runs.
func (t *Table) differ(runs []*Run) {
	first := slices.IndexFunc(runs, func(r *Run) bool { return r.Config != nil })
	if first < 0 {
		return
	}
	of := make(map[string][]string) // the values by key
	var order []string
	for i, r := range runs {
		if r.Config == nil {
			continue
		}
		for _, c := range config.Diff(runs[first].Config, r.Config) {
			if of[c.Key] == nil {
				order = append(order, c.Key)
				of[c.Key] = make([]string, len(runs))
				for k := range runs {
					if runs[k].Config != nil {
						of[c.Key][k] = c.A
					}
				}
			}
			of[c.Key][i] = c.B
		}
	}
	slices.SortFunc(order, config.CompareKeys)
	for _, key := range order {
		t.Keys = append(t.Keys, KeyRow{key, of[key]})
	}
}

// differs reports whether one of the keys differs.
func (t *Table) differs(keys ...string) bool {
	return slices.ContainsFunc(t.Keys, func(k KeyRow) bool { return slices.Contains(keys, k.Key) })
}

// remark says what a reader of the losses must know.
func (t *Table) remark(runs []*Run) {
	say := func(format string, args ...any) { t.Remarks = append(t.Remarks, fmt.Sprintf(format, args...)) }
	vocabs, texts := make(map[string]bool), make(map[string]bool)
	for _, r := range runs {
		if r.Model != nil && r.Config != nil && r.Config.Text() {
			vocabs[fmt.Sprintf("%d %s", r.Model.Vocab, r.Config.Data.Tokenizer)] = true
		}
		if r.State != nil && r.State.Data.Train.SHA256 != "" {
			texts[r.State.Data.Train.SHA256] = true
		}
	}
	if t.Vocabs = len(vocabs) > 1; t.Vocabs {
		say("the vocabularies differ, so losses are not comparable; bits per byte are (engine eval has the exact ones)")
	}
	if t.differs("data.format") {
		say("the runs learn from data of different formats, so losses are not comparable")
	} else if len(texts) > 1 {
		say("the training data differs")
	}
	var steps []string
	for _, row := range t.Rows {
		if n := words.Count(int64(row.Step)); !slices.Contains(steps, n) {
			steps = append(steps, n)
		}
	}
	if len(steps) > 1 {
		say("the runs have different lengths: %s steps", strings.Join(steps, ", "))
	}
	if t.differs("run.steps", "optimizer.warmup_steps", "optimizer.decay", "optimizer.decay_steps", "optimizer.points") {
		say("the schedules of the learning rate differ, so compare last losses and not those of equal steps")
	}
	if t.differs("run.eval_batches", "data.val_fraction", "data.val", "data.val_split", "model.context") {
		say("validations differ in their data or in their windows")
	}
}
