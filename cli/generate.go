package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
)

func (a *app) newGenerate() *cobra.Command {
	var o troupe.GenerateOptions
	cmd := &cobra.Command{
		Use:   "generate --from DIR",
		Short: "Let a trained model continue a text",
		Long: `Let a trained model continue a text, and write it as it comes, the prompt first.
The same options give the same text. On a terminal, characters that could steer
it are shown as � instead.`,
		Example: `  engine generate --from runs/run --prompt "func main() {"
  engine generate --from runs/run --tokens 1000 --temperature 1 --top-k 40 --seed 7 > text`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if err := checkGenerateFlags(cmd, o); err != nil {
				return err
			}
			if err := generate(cmd.Context(), o, a.programs()); err != nil {
				return err
			}
			if a.terminal {
				a.printf("\n") // a pipe gets the text alone
			}
			return nil
		}),
	}
	modelFlags(cmd, &o.ModelOptions)
	f := cmd.Flags()
	f.StringVar(&o.Prompt, "prompt", "", "`text` to continue (default: a line break, which is not shown)")
	f.IntVar(&o.Tokens, "tokens", 200, "`number` of tokens to write")
	f.Float64Var(&o.Temperature, "temperature", defaultTemperature, "`number`: the larger, the more random; 0 always takes the most likely token")
	f.IntVar(&o.TopK, "top-k", 0, "choose among the `k` most likely tokens; 0: among all")
	f.Uint64Var(&o.Seed, "seed", 1, "`seed` of the random choices")
	return cmd
}

const defaultTemperature = 0.8

// checkGenerateFlags leaves numbers out of their range to the library.
func checkGenerateFlags(cmd *cobra.Command, o troupe.GenerateOptions) error {
	if err := checkModelFlags(cmd, o.ModelOptions); err != nil {
		return err
	}
	switch {
	case o.Temperature == 0:
		return idle(cmd, "with --temperature 0, which always takes the most likely token", "top-k", "seed")
	case o.TopK == 1:
		return idle(cmd, "with --top-k 1, which always takes the most likely token", "temperature", "seed")
	}
	return nil
}

// generate writes a prompt and what the model makes of it.
func generate(ctx context.Context, o troupe.GenerateOptions, w io.Writer) error {
	unsaid := o.Prompt // until the model has shown that it knows it
	return troupe.Generate(ctx, o, func(text []byte) error {
		_, err := io.WriteString(w, unsaid+string(text))
		unsaid = ""
		return err
	})
}
