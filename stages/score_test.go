package stages_test

import (
	"math"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// TestScore: the log-likelihood of a branch is that of its targets token by token, whether the tokens before are in a sequence or in
// the branch, and whatever other branches run. The sequences do not change.
func TestScore(t *testing.T) {
	device, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Close)
	for _, c := range []stages.Config{
		{Family: "gpt2", Vocab: 11, Layers: 2, Hidden: 16, Heads: 2, KVHeads: 2, FFN: 32, Context: 16},
		{Family: "llama", Vocab: 11, Layers: 2, Hidden: 16, Heads: 4, KVHeads: 2, FFN: 32, Context: 16, RopeTheta: 1e4},
		{Family: "mistral", Vocab: 11, Layers: 2, Hidden: 16, Heads: 4, KVHeads: 2, FFN: 32, Context: 16, RopeTheta: 1e4, Window: 3},
		{Family: "gemma4_text", Vocab: 11, Layers: 4, Hidden: 16, Heads: 4, KVHeads: 2, FFN: 32, Context: 16, RopeTheta: 1e4, Window: 3,
			Full: []int{1, 3}, LayerInput: 5, SharedKV: 2},
	} {
		m := newModel(t, c)
		st, err := stages.NewStage(m, device.NewStream("score"), []stages.ChunkSpec{{Last: len(m.Symbols())}}, stages.Options{Inference: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Load(stages.InitWeights(3), false); err != nil {
			t.Fatal(err)
		}
		d, err := stages.NewDecoder(st)
		if err != nil {
			t.Fatal(err)
		}
		prompt, one, two := []int32{3, 1, 4, 1, 5}, []int32{9, 2, 6}, []int32{5, 3}
		// reference: token by token
		wants := make([]float64, 2)
		for i, choice := range [][]int32{one, two} {
			q := add(t, d)
			logits, err := q.Next(append([]int32{}, prompt...))
			for _, id := range choice {
				if err != nil {
					t.Fatal(err)
				}
				wants[i] += logProb(logits, id)
				logits, err = q.Next([]int32{id})
			}
			q.Close()
		}
		q := add(t, d)
		if _, err := q.Next(prompt[:4]); err != nil {
			t.Fatal(err)
		}
		tail := func(choice []int32) []int32 { return append([]int32{prompt[4]}, choice[:len(choice)-1]...) }
		whole := append(append([]int32{}, prompt...), two[:1]...)
		for range 2 { // the first call changes nothing
			got, err := d.Score(stages.Branch{Sequence: q, Tokens: tail(one), Targets: one},
				stages.Branch{Tokens: whole, Targets: two}, stages.Branch{Sequence: q, Tokens: tail(two), Targets: two})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []float64{wants[0], wants[1], wants[1]} {
				if math.Abs(got[i]-want) > 1e-5 {
					t.Errorf("%s: branch %d has %g, token by token %g", c.Family, i, got[i], want)
				}
			}
			if q.Used() != 4 {
				t.Errorf("the sequence has %d positions, want 4", q.Used())
			}
		}
		for name, b := range map[string]stages.Branch{"no tokens": {Targets: []int32{1}}, "no targets": {Tokens: []int32{1}},
			"more targets": {Tokens: []int32{1}, Targets: []int32{1, 2}}, "a large id": {Tokens: []int32{1}, Targets: []int32{11}}} {
			if _, err := d.Score(b); err == nil {
				t.Errorf("%s is scored", name)
			}
		}
		q.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
}

func logProb(logits []float32, id int32) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, x := range logits {
		top = max(top, float64(x))
	}
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}
