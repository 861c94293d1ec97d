package stages_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
)

// BenchmarkTensorParallel: a step on ranks of one thread each, beside the whole model on as many
// threads; "speed" is how the two compare, by turns in one run.
func BenchmarkTensorParallel(b *testing.B) {
	cfg := stages.Config{Family: stages.Llama, Layers: 4, Hidden: 512, Heads: 8, KVHeads: 8, FFN: 1376, Context: 256, Vocab: 4096,
		RopeTheta: 1e4}
	m := newModel(b, cfg)
	mbs := microbatches(cfg, 1, 4, 2)
	for _, sequence := range []bool{false, true} {
		b.Run(fmt.Sprintf("sequence=%v", sequence), func(b *testing.B) {
			const size = 2
			o := stages.Options{Seed: 5, Optimizer: adamw, Pack: true, StepTokens: 4 * cfg.Context}
			whole := newTeam(b, newDevice(b, size), m, 1, nil, o)
			o.Tensor.Sequence = sequence
			split := &team{t: b, model: m, group: collective.Local("tensor", size), specs: whole.specs}
			for rank := range size {
				s := newDevice(b, 1).NewStream("rank")
				b.Cleanup(s.Close)
				o.Tensor.Group = split.group[rank]
				st, err := stages.NewStage(m, s, split.specs, o)
				if err != nil {
					b.Fatal(err)
				}
				split.ranks = append(split.ranks, &teamRank{team: split, rank: rank, stage: st, stream: s})
			}
			split.each(func(r *teamRank) error { return r.stage.Load(largeWeights, false) })
			spent := map[*team]time.Duration{}
			for i := range b.N {
				for _, w := range []*team{whole, split} {
					start := time.Now()
					w.step(i+1, mbs)
					spent[w] += time.Since(start)
				}
			}
			b.ReportMetric(float64(spent[whole])/float64(spent[split]), "speed")
		})
	}
}
