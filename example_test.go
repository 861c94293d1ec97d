package troupe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
)

// Train a model in two stages, from Go code.
func Example() {
	out, err := os.MkdirTemp("", "troupe-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(out) //nolint:errcheck // a temporary folder

	cfg, err := config.Parse("example.toml", []byte(`
[run]
steps = 30
eval_every = 10
out = "${OUT}"

[model]
layers = 2
hidden = 32
heads = 4
context = 32

[data]
train = ["testdata/troupe.txt"]

[batch]
sequences = 8
microbatch = 2

[optimizer]
lr = 0.01
warmup_steps = 5

[pipeline]
stages = 2
`), nil, func(string) (string, bool) { return out, true })
	if err != nil {
		fmt.Println(err)
		return
	}

	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for event := range run.Events() {
		if e, ok := event.(troupe.StepEvent); ok && e.ValLoss != nil {
			fmt.Printf("validated step %d\n", e.Step)
		}
	}
	result, err := run.Wait()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("last checkpoint:", filepath.Base(result.Dir))
	fmt.Println("the loss fell:", result.LastValLoss < result.FirstValLoss-1)
	// Output:
	// validated step 0
	// validated step 10
	// validated step 20
	// validated step 30
	// last checkpoint: step-00000030
	// the loss fell: true
}

// Train without a file: Go code sets the values that differ from the defaults.
func Example_values() {
	out, err := os.MkdirTemp("", "troupe-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(out) //nolint:errcheck // a temporary folder

	cfg, err := config.New(func(c *config.Config) {
		c.Run.Out, c.Run.Steps, c.Run.EvalEvery = out, 10, 0
		c.Model.Layers, c.Model.Hidden, c.Model.Context = 2, 16, 16
		c.Data.Train = []string{"testdata/troupe.txt"}
		c.Optimizer.LR = 0.01 // optimizer.min_lr follows
		c.Pipeline.Stages = 2
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	run, err := troupe.Start(context.Background(), cfg, troupe.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := run.Wait()
	fmt.Println("steps:", result.Step, "floor of the learning rate:", cfg.Optimizer.MinLR, "error:", err)
	// Output:
	// steps: 10 floor of the learning rate: 0.001 error: <nil>
}
