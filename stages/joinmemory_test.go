package stages_test

import (
	"math/rand/v2"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestJoinMemory: microbatches of any length take the memory of the longest one, which is what a forecast records.
func TestJoinMemory(t *testing.T) {
	m := newModel(t, stages.Config{Family: "llama", Layers: 6, Hidden: 256, Heads: 8, KVHeads: 4, FFN: 704, Context: 512, Vocab: 4096,
		RopeTheta: 10000, Tie: true})
	const sequences, longest = 4, 512
	taken := func(join bool, lengths int) int64 {
		dry := tensorops.NewDryStream()
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}},
			stages.Options{Optimizer: adamw, StepTokens: 2 * sequences * longest, JoinMemory: join})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 2))
		run := func(record func(l *tensorops.List)) {
			l := dry.NewList()
			record(l)
			if err := tensorops.Run(dry, l); err != nil {
				t.Fatal(err)
			}
		}
		for step := range lengths {
			for i := range 2 {
				n := longest
				if step > 0 {
					n = 16 + random.IntN(longest-15)
				}
				ids := make([]int32, sequences*n)
				mb := stages.Microbatch{Step: int64(step), Index: i, Of: 2, Sequences: sequences, Positions: n, Tokens: ids, Targets: ids,
					Train: true}
				run(func(l *tensorops.List) { s.Forward(l, 0, &mb) })
				run(func(l *tensorops.List) { s.Backward(l, 0, i) })
			}
			run(s.GradNorms)
			run(func(l *tensorops.List) { s.Apply(l, stages.Update{Count: step + 1}) })
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return dry.Memory().Taken
	}
	forecast := taken(true, 1)
	if got := taken(true, 40); float64(got) > 1.05*float64(forecast) {
		t.Errorf("microbatches of 40 lengths take %d bytes, %.2f times the %d of the longest alone", got, float64(got)/float64(forecast),
			forecast)
	}
	if got := taken(false, 40); float64(got) < 1.5*float64(forecast) {
		t.Errorf("without JoinMemory they take %d bytes, and the longest alone %d: the test shows nothing", got, forecast)
	}
	if got := taken(false, 1); float64(forecast) > 1.07*float64(got) {
		t.Errorf("the longest microbatch takes %d bytes, %d without JoinMemory", forecast, got)
	}
}
