package troupe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
)

// A model is trained in two stages, from Go code.
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
			fmt.Printf("step %d is validated\n", e.Step)
		}
	}
	result, err := run.Wait()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the last checkpoint is", filepath.Base(result.Dir))
	fmt.Println("the loss fell:", result.LastValLoss < result.FirstValLoss-1)
	// Output:
	// step 0 is validated
	// step 10 is validated
	// step 20 is validated
	// step 30 is validated
	// the last checkpoint is step-00000030
	// the loss fell: true
}
