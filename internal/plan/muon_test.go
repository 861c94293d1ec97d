package plan_test

import (
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/stages"
)

func muonPlan(t *testing.T, sets ...string) (*plan.Plan, error) {
	t.Helper()
	text := `
run = {steps = 2, eval_batches = 1}
model = {layers = 2, hidden = 32, context = 16, vocab = 64}
data = {train = ["../../testdata/troupe.txt"]}
batch = {sequences = 8, microbatch = 1}
optimizer = {name = "muon"}
`
	cfg, err := config.Parse("muon.toml", []byte(text), append(sets, "run.out="+t.TempDir()), nil)
	if err != nil {
		return nil, err
	}
	return plan.New(cfg, cfg.Model.Vocab, stages.Config{})
}

// TestMuonRefused: a GPU, blocks of 8 bits in parts, and models without anything to train are refused, and the error says what to change.
func TestMuonRefused(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want []string // "": it is planned
	}{
		{[]string{"parallel.data=2", "pipeline.stages=2"}, nil},
		{[]string{"parallel.tensor=2", "parallel.data=2", "parallel.zero=1"}, nil},
		{[]string{"parallel.tensor=2", "optimizer.state_dtype=bfloat16"}, nil},
		{[]string{"parallel.tensor=2", "optimizer.state_dtype=int8"},
			[]string{"optimizer.state_dtype", "parallel.tensor = 2 would split", "tensor = 1"}},
		{[]string{"device.kind=cuda"}, []string{"optimizer.name", "computes only on the CPU", `set device.kind = "cpu"`}},
		{[]string{`device.ranks=["cpu", "cuda:0"]`, "pipeline.stages=2"}, []string{"optimizer.name", "stage 1 is on a GPU", "device.ranks"}},
		{[]string{`model.freeze=["embed", "0-1"]`}, []string{"optimizer.name", "has nothing to train", "freeze less"}},
	} {
		checkPlan(t, c.sets, c.want)
	}
}

// checkPlan makes the plan of muonPlan with other settings. want is what its error says; nil: it is planned.
func checkPlan(t *testing.T, sets, want []string) {
	t.Helper()
	_, err := muonPlan(t, sets...)
	if (err == nil) != (want == nil) {
		t.Errorf("%v: %v", sets, err)
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: %v, want %s in it", sets, err, part)
		}
	}
}

// TestMuonMemory: the copy for a checkpoint has one number of state for each number of a hidden matrix, and two for the others.
func TestMuonMemory(t *testing.T) {
	p, err := muonPlan(t)
	if err != nil {
		t.Fatal(err)
	}
	hidden := int64(2 * (4 + 8) * 32 * 32) // of each layer: query, key, value, output, and the two of the feed-forward part
	if got := plan.Optimizer(p.Config()).MuonLen(p.Model()); got != hidden {
		t.Errorf("Muon has %d numbers, want %d", got, hidden)
	}
	bytes, err := p.CheckpointBytes()
	if want := 4 * (3*p.Model().Parameters() - hidden); err != nil || len(bytes) != 1 || bytes[0] != want {
		t.Errorf("a checkpoint has %v bytes, %v; want %d", bytes, err, want)
	}
}
