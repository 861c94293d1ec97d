package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/tensorops"
)

func (a *app) newPredict() *cobra.Command {
	var (
		o     troupe.PredictOptions
		names []string
	)
	cmd := &cobra.Command{
		Use:   "predict [DIR]",
		Short: "Predict classes or numbers for samples",
		Long: `Predict classes or numbers for samples, with a model that was trained on samples (csv, idx,
jsonl or a registered format). It prints one JSON object per sample: the sample's number,
the model's outputs ("logits" of a classifier, "predictions" of a regression, and the
outputs that custom layers name), and for a classifier the class with the largest logit,
by its name if classes have names. Numbers that are not finite are null. The loss and the
metrics go to standard error.

The files of --data must have the columns or keys of the training data. Without --data it
uses the run's validation data.

See also: engine eval (loss only), engine help formats.`,
		Example: `  engine predict --from runs/digits
  engine predict --from runs/digits --data new.csv --output logits`,
		Args:              takesModel,
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.Microbatch < 1 {
				return usagef("--microbatch %d: give 1 or more", o.Microbatch)
			}
			if err := checkModelFlags(cmd, o.ModelOptions); err != nil {
				return err
			}
			classes, err := troupe.ClassNames(o.ModelOptions)
			if err != nil {
				return err
			}
			out := bufio.NewWriter(a.out)
			res, err := troupe.Predict(cmd.Context(), o, func(p troupe.Prediction) error {
				for _, name := range names {
					if _, ok := p.Output(name); !ok {
						return usagef("--output %s: no such output; the model has %q", name, outputNames(p))
					}
				}
				return writePrediction(out, p, names, classes)
			})
			if err = errors.Join(err, out.Flush()); err == nil {
				say(a.err, "loss %.4f%s  %s of %s, step %d", res.Loss, metricsText(res.Metrics), words.Plural(res.Windows, "sample"),
					words.OneLine(res.From), res.Step)
			}
			return err
		}),
	}
	modelFlags(cmd, &o.ModelOptions)
	f := cmd.Flags()
	f.StringArrayVar(&o.Data, "data", nil, "`file` or quoted pattern with samples; repeatable (default: the run's validation data)")
	f.StringArrayVar(&names, "output", nil, "`name` of an output to print; repeatable (default: all)")
	f.IntVar(&o.Microbatch, "microbatch", 64, "`number` of samples to compute at a time")
	completeWords(cmd, "microbatch")
	completeWords(cmd, "output")
	return cmd
}

func outputNames(p troupe.Prediction) (names []string) {
	for _, o := range p.Outputs {
		names = append(names, o.Name)
	}
	return names
}

// writePrediction writes one line per sample.
func writePrediction(to *bufio.Writer, p troupe.Prediction, names, classes []string) error {
	rows := 0
	for _, o := range p.Outputs {
		if len(o.Shape) > 0 {
			rows = max(rows, o.Shape[0])
		}
	}
	for i := range rows {
		line := map[string]any{"sample": p.First + i}
		for _, o := range p.Outputs {
			if len(o.Shape) == 0 || o.Shape[0] != rows {
				continue
			}
			if len(names) == 0 || slices.Contains(names, o.Name) {
				line[o.Name] = row(o.Array, i, rows)
			}
			if o.Name == "logits" && len(o.Float) > 0 {
				line["class"] = nested(i*len(o.Float)/rows, o.Shape[1:], func(at, n int) any { return class(o.Float[at:][:n], classes) })
			}
		}
		b, err := json.Marshal(line)
		if err != nil {
			return fmt.Errorf("sample %d: %w", p.First+i, err)
		}
		if _, err := to.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// row returns the numbers of sample i, as nested lists of its shape.
func row(a tensorops.Array, i, rows int) any {
	return nested(i*a.Len()/rows, a.Shape[1:], func(at, n int) any { return rowNumbers(a, at, n) })
}

// nested returns nested lists with dimensions dims. last makes the innermost ones from the n numbers that
// start at a place.
func nested(at int, dims []int, last func(at, n int) any) any {
	switch len(dims) {
	case 0:
		return last(at, 1)
	case 1:
		return last(at, dims[0])
	}
	step := 1
	for _, d := range dims[1:] {
		step *= d
	}
	list := make([]any, dims[0])
	for k := range list {
		list[k] = nested(at+k*step, dims[1:], last)
	}
	return list
}

func rowNumbers(a tensorops.Array, at, n int) any {
	if a.DType() == tensorops.Int32 {
		return a.Int[at:][:n]
	}
	list := make([]json.RawMessage, n)
	for k := range n {
		var v float64
		bits := 64
		if a.DType() == tensorops.Float64 {
			v = a.Double[at+k]
		} else {
			v, bits = float64(a.Float[at+k]), 32
		}
		list[k] = json.RawMessage("null")
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			list[k] = strconv.AppendFloat(nil, v, 'g', -1, bits) // the fewest digits that read back as the same
		}
	}
	return list
}

// class returns the index of the largest logit, the first if several are equal, or its name.
func class(logits []float32, names []string) any {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	if best < len(names) {
		return names[best]
	}
	return best
}
