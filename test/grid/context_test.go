package grid

import (
	"context"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

// maxPositions is what a step's config.json says.
func maxPositions(t *testing.T, out string, step int) int {
	t.Helper()
	var model struct {
		Max       int `json:"max_position_embeddings"`
		Positions int `json:"n_positions"` // GPT-2's name
	}
	if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(testrun.StepDir(out, step), "config.json"))), &model); err != nil {
		t.Fatal(err)
	}
	return max(model.Max, model.Positions)
}

// TestShorterContext: a model trains at a shorter context than its own, which its checkpoints
// keep, learned positions too, and is used at the run's.
func TestShorterContext(t *testing.T) {
	for _, family := range []string{"llama", "gpt2"} {
		t.Run(family, func(t *testing.T) { shorterContext(t, family) })
	}
}

func shorterContext(t *testing.T, family string) {
	c := testrun.TinyModels[family]
	c.Context = 64
	from := testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)
	text := testrun.Write(t, filepath.Join(t.TempDir(), "val.txt"), testrun.Read(t, "testdata/troupe.txt")[:12*8+1])
	sets := []string{"model.from=" + from, "model.context=8", "data.val=" + text, "run.eval_batches=1000"}
	fromRun := func(out string, sets ...string) *troupe.Run {
		return testrun.Start(t, testrun.FromConfig(t, from, append(sets, "run.out="+out, "run.eval_every=1", "run.checkpoint_every=1",
			"run.keep=0")...))
	}
	out := filepath.Join(t.TempDir(), "out")
	result, _ := testrun.Finish(t, fromRun(out, sets...))
	if n := maxPositions(t, out, 1); n != 64 {
		t.Errorf("the checkpoint says that the model has %d positions", n)
	}
	o := troupe.ModelOptions{From: out}
	got, err := troupe.Evaluate(context.Background(), troupe.EvalOptions{ModelOptions: o})
	if err != nil || got.Windows != 12 || !(math.Abs(got.Loss-result.LastValLoss) < 1e-9) {
		t.Errorf("evaluated: %+v, %v; the run had %g", got, err, result.LastValLoss)
	}
	testrun.Generate(t, troupe.GenerateOptions{ModelOptions: o, TextOptions: troupe.TextOptions{Prompt: "actor", Tokens: 30}})

	// A run from that one goes on where it ended, unless it is told otherwise.
	next := filepath.Join(t.TempDir(), "out")
	run := fromRun(next, "model.from="+out, sets[2], sets[3])
	if after, _ := testrun.Finish(t, run); math.Float64bits(after.FirstValLoss) != math.Float64bits(result.LastValLoss) ||
		maxPositions(t, next, 1) != 64 {
		t.Errorf("the next run begins at %g, the first ended at %g; it has %d positions", after.FirstValLoss, result.LastValLoss,
			maxPositions(t, next, 1))
	}
	long := filepath.Join(t.TempDir(), "out")
	testrun.Finish(t, fromRun(long, "model.from="+out, "model.context=64"))
	if maxPositions(t, long, 1) != 64 {
		t.Errorf("trained at 64 again, it has %d positions", maxPositions(t, long, 1))
	}

	if result, _ = testrun.Finish(t, fromRun(out, append(sets, "run.steps=2")...)); result.Step != 2 || maxPositions(t, out, 2) != 64 {
		t.Errorf("resumed, it ended at step %d with %d positions", result.Step, maxPositions(t, out, 2))
	}
}

// TestContextRefused: more positions than a model has.
func TestContextRefused(t *testing.T) {
	for _, tt := range []struct {
		family, context string
		want            []string
	}{
		{"llama", "17", []string{"model.context", "17", "16 positions"}},
		{"gpt2", "17", []string{"model.context", "17", "16 positions"}},
	} {
		c := testrun.TinyModels[tt.family]
		cfg := testrun.FromConfig(t, testrun.Directory(t, c, testrun.TensorsOf(t, c), nil), "model.context="+tt.context)
		testrun.Refused(t, cfg, troupe.Options{}, nil, tt.want...)
		if err := troupe.Check(cfg); err == nil || !strings.Contains(err.Error(), tt.want[2]) {
			t.Errorf("Check says %v", err)
		}
	}
	for _, c := range []stages.Config{
		{Family: stages.Llama, Layers: 1, Hidden: 4, Heads: 1, KVHeads: 1, FFN: 4, Context: 8, Vocab: 3, RopeTheta: 1e4, MaxPositions: 7},
		{Family: stages.GPT2, Layers: 1, Hidden: 4, Heads: 1, KVHeads: 1, FFN: 4, Context: 8, Vocab: 3, MaxPositions: 7},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%+v is possible", c)
		}
	}
}
