package cli

import (
	"context"
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
		o       troupe.EvalOptions
		choices []string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "eval [DIR]",
		Short: "Compute a trained model's loss on a text",
		Long: `Compute a trained model's loss, perplexity and bits per byte on a text or on documents.
Without --data it uses the validation data of the run that trained the model. If the run has
[[eval]] sections, it evaluates all validation sets, with a line for each; --eval-set chooses
one. The set of data.val or data.val_fraction is called val.

The text is cut into windows of the model's context, and every token except the first is
predicted once. The loss is the mean over the predicted tokens, in nats. Bits per byte is
the total loss in bits, divided by the bytes of text; use it to compare models with
different tokenizers. Longer windows give a lower loss, because the first tokens of a window
are predicted from few others: compare losses only at the same --context.

JSON lines (.jsonl) are read as documents, and other files in the format of the run
(data.format), or as text. Of a document, only some tokens are learned: the completion, or
what the assistant says. The loss is about these. A warning, and "documents" in the JSON,
say how many documents did not fit the context. If the loss is not finite, --json prints
null and the exit status is 1.

With --choices it scores multiple-choice items instead: JSON lines with "prompt" or
"question", "choices", and "answer", an index from 0 or a letter. It prints acc, the share of
items whose most likely choice is the answer, and acc_norm, by log-likelihood per character,
each with its standard error.

See also: engine help formats, engine predict (models of samples), engine generate.`,
		Example: `  engine eval --from runs/run
  engine eval --from runs/run --eval-set legal
  engine eval --from runs/run/checkpoints/best --data 'books/*.txt' --json
  engine eval --from models/SmolLM2-135M --data chat.jsonl --chat-template chatml --context 256
  engine eval --from runs/run --choices arc.jsonl`,
		Args:              takesModel,
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.Microbatch < 1 {
				return usagef("--microbatch %d: give 1 or more", o.Microbatch)
			}
			if err := checkModelFlags(cmd, o.ModelOptions); err != nil {
				return err
			}
			if len(choices) > 0 {
				return a.evalChoices(cmd, troupe.ChoicesOptions{ModelOptions: o.ModelOptions, Data: choices, Context: o.Context, TooLong: o.TooLong},
					asJSON)
			}
			return a.evalSets(cmd.Context(), o, asJSON)
		}),
	}
	modelFlags(cmd, &o.ModelOptions)
	f := cmd.Flags()
	f.StringArrayVar(&o.Data, "data", nil, "`file` or quoted pattern to evaluate; repeatable (default: the run's validation data)")
	f.StringVar(&o.Set, "eval-set", "", "`name` of a validation set of the run to evaluate, as [[eval]] names it (default: all)")
	f.StringArrayVar(&choices, "choices", nil, "`file` or quoted pattern of multiple-choice items to score; repeatable")
	f.StringVar(&o.Format, "format", "",
		"`format` of the data: text, documents, uint16 or uint32 (default: documents for .jsonl, else the run's, else text)")
	f.StringVar(&o.InvalidUTF8, "invalid-utf8", "",
		"`action` for text that is not UTF-8: refuse, or bytes to use the bytes as they are (default: the run's data.invalid_utf8)")
	f.StringVar(&o.SpecialTokens, "special-tokens", "",
		"`meaning` of special tokens' names in texts, prompts and completions: tokens or text (default: the run's data.special_tokens, else tokens)")
	chatTemplateFlag(cmd, &o.ModelOptions)
	f.StringArrayVar(&o.Fields, "field", nil,
		"`key=name`: read the key of a document from the name, as data.fields; repeatable (default: the run's data.fields)")
	f.IntVar(&o.Context, "context", 0, "window length in `tokens`, up to the model's positions (default: the context of its training)")
	f.StringVar(&o.TooLong, "too-long", "",
		"`action` for a document with a prompt or messages that is longer than the context: cut or refuse (default: cut)")
	f.IntVar(&o.Microbatch, "microbatch", 4, "`number` of sequences to compute at a time")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	completeWords(cmd, "format", "text", "documents", "uint16", "uint32")
	completeWords(cmd, "too-long", "cut", "refuse")
	completeWords(cmd, "invalid-utf8", config.UTF8OrRefuse, config.UTF8OrBytes)
	completeWords(cmd, "special-tokens", config.SpecialAsTokens, config.SpecialAsText)
	completeWords(cmd, "microbatch")
	completeWords(cmd, "context")
	completeWords(cmd, "field")
	completeWords(cmd, "eval-set")
	return cmd
}

// textFlags are flags that have no effect on multiple-choice items.
var textFlags = []string{"data", "eval-set", "format", "invalid-utf8", "special-tokens", "field", "microbatch", "chat-template"}

// evalSets evaluates what the options say, with a line for each result.
func (a *app) evalSets(ctx context.Context, o troupe.EvalOptions, asJSON bool) error {
	var last troupe.EvalResult
	err := troupe.EvaluateSets(ctx, o, func(res troupe.EvalResult) error {
		for _, text := range res.Warnings {
			a.warn(text)
		}
		switch last = res; {
		case asJSON:
			return a.json(evalJSON{res, figure(res.Loss), figure(res.Perplexity)})
		case math.IsNaN(res.Loss), math.IsInf(res.Loss, 0): // the error says so
			return nil
		}
		a.printf("%s\n", evalLine(res))
		return nil
	})
	if err != nil || asJSON {
		return err
	}
	a.printf("%s, step %d\n", words.OneLine(last.From), last.Step)
	return nil
}

// evalLine is the line of a result.
func evalLine(res troupe.EvalResult) string {
	set := ""
	if res.Set != "" {
		set = res.Set + "  "
	}
	if res.Samples {
		return fmt.Sprintf("%sloss %.4f%s  %s", set, res.Loss, metricsText(res.Metrics), words.Plural(res.Windows, "sample"))
	}
	perByte := ""
	if res.BitsPerByte > 0 {
		perByte = fmt.Sprintf("  %.4f bits per byte", res.BitsPerByte)
	}
	return fmt.Sprintf("%sloss %.4f  perplexity %s%s  %s", set, res.Loss, perplexityText(res.Perplexity), perByte, evaluated(res))
}

// evalChoices scores multiple-choice items.
func (a *app) evalChoices(cmd *cobra.Command, o troupe.ChoicesOptions, asJSON bool) error {
	for _, name := range textFlags {
		if cmd.Flags().Changed(name) {
			return usagef("--%s has no effect with --choices; leave one of them out", name)
		}
	}
	res, err := troupe.EvaluateChoices(cmd.Context(), o)
	switch {
	case err != nil:
		return err
	case asJSON:
		return a.json(res)
	}
	if res.Cut > 0 {
		a.warn(fmt.Sprintf("%s did not fit the context: the beginning of the prompt was cut", words.Plural(res.Cut, "item")))
	}
	a.printf("acc %.4f ± %.4f  acc_norm %.4f ± %.4f  %s\n%s, step %d\n", res.Accuracy, res.AccuracyErr, res.AccuracyNorm, res.NormErr,
		words.Plural(len(res.Items), "item"), words.OneLine(res.From), res.Step)
	return nil
}

// evaluated says what a loss is about.
func evaluated(res troupe.EvalResult) string {
	if d := res.Documents; d != nil {
		return fmt.Sprintf("%s learned of %s tokens in %s, context %s", words.Count(res.Tokens), words.Count(d.Tokens),
			words.Plural(d.Total-d.Dropped, "document"), words.Count(int64(res.Context)))
	}
	return fmt.Sprintf("%s tokens in %s", words.Count(res.Tokens), words.Plural(res.Windows, "window"))
}

// metricsText formats the metrics that follow a loss.
func metricsText(of map[string]float64) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&text, "  %s %.4g", name, of[name])
	}
	return text.String()
}

// perplexityText keeps the digits after the point where they matter.
func perplexityText(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.5g", v)
}

// evalJSON is the result, with null for numbers that are not finite.
type evalJSON struct {
	troupe.EvalResult
	Loss       *float64 `json:"loss"`
	Perplexity *float64 `json:"perplexity"`
}

// figure returns a number for JSON: nil, which is null, if it is not finite.
func figure(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
