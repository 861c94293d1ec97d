package testrun

import (
	"testing"

	"github.com/troupe-ml/troupe/config"
)

// DigitsRun trains a small classifier, with everything that could make results depend on the layout.
const DigitsRun = `
[run]
seed = 7
steps = 6
eval_every = 3
eval_batches = 3
checkpoint_every = 3
keep = 0

[model]
family = "mlp"
layers = 3
hidden = 24
dropout = 0.1

[data]
format = "csv"
train = ["examples/digits/digits-train.csv"]
val = ["examples/digits/digits-test.csv"]
label = "label"
scale = 0.0625

[batch]
sequences = 24
microbatch = 3

[optimizer]
warmup_steps = 2
clip_norm = 0.05
`

// DigitsConfig returns DigitsRun with an output folder and keys set as on the command line.
func DigitsConfig(t testing.TB, out string, sets ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("digits.toml", []byte(DigitsRun), append([]string{"run.out=" + out}, sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TrainDigits runs DigitsRun to its end.
func TrainDigits(t testing.TB, out string, sets ...string) {
	t.Helper()
	Finish(t, Start(t, DigitsConfig(t, out, sets...)))
}

const StreamRun = `
[run]
steps = 6
checkpoint_every = 3
keep = 0
[model]
family = "stack"
stack = ["input", "dense out=8 act=tanh", "dense out=1", "mse"]
[data]
format = "test-stream"
[batch]
sequences = 12
microbatch = 3
[pipeline]
stages = 2
[optimizer]
decay = "constant"
warmup_steps = 1
`
