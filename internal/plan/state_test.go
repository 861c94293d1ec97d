package plan_test

import (
	"testing"

	"github.com/troupe-ml/troupe/internal/plan"
)

// TestStateRefused: what would split blocks of 8 bits, and GPUs, are refused, and the error says what to change.
func TestStateRefused(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want []string // "": it is planned
	}{
		{[]string{"optimizer.state_dtype=bfloat16", "parallel.data=2", "parallel.tensor=2", "parallel.zero=1"}, nil},
		{[]string{"optimizer.state_dtype=int8", "parallel.data=2", "pipeline.stages=2"}, nil},
		{[]string{"optimizer.state_dtype=int8", "parallel.tensor=2"},
			[]string{"optimizer.state_dtype", "parallel.tensor = 2 would split", "tensor = 1"}},
		{[]string{"optimizer.state_dtype=int8", "parallel.data=2", "parallel.zero=1"}, nil},
		{[]string{"optimizer.state_dtype=bfloat16", "device.kind=cuda"},
			[]string{"optimizer.state_dtype", "computes only on the CPU", `set device.kind = "cpu"`}},
	} {
		checkPlan(t, append(c.sets, "optimizer.name=adamw"), c.want)
	}
}

// TestStateMemory: forecasts count the bytes of a weight's state: two moments of 4, 2, or 1 and a scale for each 256.
func TestStateMemory(t *testing.T) {
	memory := func(dtype string) (rank, saved int64, p *plan.Plan) {
		p, err := muonPlan(t, "optimizer.name=adamw", "optimizer.state_dtype="+dtype, "model.hidden=256", "batch.sequences=1")
		if err != nil {
			t.Fatal(err)
		}
		least, err := p.LeastBytes()
		if err != nil {
			t.Fatal(err)
		}
		checkpoints, err := p.CheckpointBytes()
		if err != nil {
			t.Fatal(err)
		}
		return least, checkpoints[0], p
	}
	rank, saved, p := memory("float32")
	n := float64(p.Model().Parameters())
	for dtype, less := range map[string]float64{"bfloat16": 4, "int8": 8 - 2*(1+4.0/256)} {
		r, s, _ := memory(dtype)
		if got := float64(rank-r) / n; got < less*0.99 || got > less*1.01 {
			t.Errorf("%s: a rank has %.3f bytes a weight less, want %.3f", dtype, got, less)
		}
		if got := float64(saved-s) / n; got < less*0.99 || got > less*1.01 {
			t.Errorf("%s: a checkpoint's copy has %.3f bytes a weight less, want %.3f", dtype, got, less)
		}
	}
}
