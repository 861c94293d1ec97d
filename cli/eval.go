package cli

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
)

func (a *app) newEval() *cobra.Command {
	var (
		o      troupe.EvalOptions
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "eval --from DIR",
		Short: "Compute a trained model's loss on a text",
		Long: `Compute a trained model's loss over a whole text: every token but the first is
predicted once, in windows of the model's context, by a forward-only schedule.
The loss is the mean of all predicted tokens, in nats; bits per byte is its sum in bits
by the bytes of their text, which compares models with different tokenizers. The first tokens
of a window are predicted from few others: longer windows have a lower loss.
Without --data it is the validation text of the run that the model is from. A loss
that is no number is an error: with --json it is printed as null, and the exit status
is 1. How many documents did not fit the context is reported as a warning, and with --json
in "documents".`,
		Example: `  engine eval --from runs/run
  engine eval --from runs/run/checkpoints/best --data 'books/*.txt' --json`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.Microbatch < 1 {
				return usagef("--microbatch %d: give 1 or more", o.Microbatch)
			}
			if err := checkModelFlags(cmd, o.ModelOptions); err != nil {
				return err
			}
			res, err := troupe.Evaluate(cmd.Context(), o)
			for _, text := range res.Warnings {
				a.warn(text)
			}
			if asJSON && (err == nil || errors.Is(err, troupe.ErrNotFinite)) {
				return errors.Join(a.json(evalJSON{res, figure(res.Loss), figure(res.Perplexity)}), err)
			}
			if err != nil {
				return err
			}
			if res.Samples {
				a.printf("loss %.4f%s  %s\n%s, step %d\n", res.Loss, metricsText(res.Metrics), words.Plural(res.Windows, "sample"),
					words.OneLine(res.From), res.Step)
				return nil
			}
			perByte := ""
			if res.BitsPerByte > 0 {
				perByte = fmt.Sprintf("  %.4f bits per byte", res.BitsPerByte)
			}
			a.printf("loss %.4f  perplexity %.4g%s  %s tokens in %s\n%s, step %d\n",
				res.Loss, res.Perplexity, perByte, words.Count(res.Tokens), words.Plural(res.Windows, "window"), words.OneLine(res.From), res.Step)
			return nil
		}),
	}
	modelFlags(cmd, &o.ModelOptions)
	f := cmd.Flags()
	f.StringArrayVar(&o.Data, "data", nil, "`file` or quoted pattern to evaluate; repeatable (default: the run's validation text)")
	f.StringVar(&o.Format, "format", "", "`text`, documents (JSON lines), or uint16 or uint32, little-endian token ids (default: the run's)")
	f.StringVar(&o.InvalidUTF8, "invalid-utf8", "",
		"`refuse` a text that is not UTF-8, or take its bytes as they are (default: the run's data.invalid_utf8)")
	f.StringVar(&o.SpecialTokens, "special-tokens", "",
		"take names of special tokens in texts, prompts and completions as `tokens` or as text (default: the run's data.special_tokens, else tokens)")
	f.IntVar(&o.Context, "context", 0, "`tokens` of a window, up to the model's positions (default: the context that it was trained with)")
	f.StringVar(&o.TooLong, "too-long", "",
		"what becomes of a document with a prompt or messages that is longer than the context: `cut` or refuse (default cut)")
	f.IntVar(&o.Microbatch, "microbatch", 4, "`sequences` to compute at a time")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completeWords(cmd, "format", "text", "documents", "uint16", "uint32")
	completeWords(cmd, "too-long", "cut", "refuse")
	completeWords(cmd, "invalid-utf8", config.UTF8OrRefuse, config.UTF8OrBytes)
	completeWords(cmd, "special-tokens", config.SpecialAsTokens, config.SpecialAsText)
	completeWords(cmd, "microbatch")
	completeWords(cmd, "context")
	return cmd
}

// metricsText writes metrics behind a loss.
func metricsText(of map[string]float64) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&text, "  %s %.4g", name, of[name])
	}
	return text.String()
}

// evalJSON is the result with figures that JSON can hold.
type evalJSON struct {
	troupe.EvalResult
	Loss       *float64 `json:"loss"`
	Perplexity *float64 `json:"perplexity"`
}

// figure is a number for JSON, which has none that is not finite: null then.
func figure(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
