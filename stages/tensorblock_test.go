package stages_test

import (
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// blockPass runs one decoder layer forward and back on every rank: what it makes of x, the
// gradient of x, and those of its weights.
func blockPass(t *testing.T, m *stages.Model, dev tensorops.Device, size int, sequence bool) (y, dx []float64, grads map[string][]float64) {
	t.Helper()
	o := stages.Options{Seed: 5, Optimizer: adamw, Tensor: stages.TensorParallel{Sequence: sequence}}
	w := newTeam(t, dev, m, size, []int{1, 2}, o) // the layer is chunk 1
	w.each(func(r *teamRank) error { return r.stage.Load(stages.InitWeights(5), false) })
	cfg, saved := m.Config, make([][]stages.Saved, size)
	mb := microbatches(cfg, 1, 2, 2)[0]
	n := mb.Sequences * mb.Positions * cfg.Hidden
	xs, dys := make([]float32, n), make([]float32, n)
	rng.Normal(xs, rng.NewKey(1, 1), 0, 0, 1)
	rng.Normal(dys, rng.NewKey(1, 2), 0, 0, 1)
	y, dx = make([]float64, n), make([]float64, n)
	// A rank's positions are a slice of the whole's second dimension.
	whole := []int{mb.Sequences, mb.Positions, cfg.Hidden}
	positions := stages.Split{}
	if sequence {
		positions = stages.Split{Dim: 1, Sections: 1, Units: mb.Positions}
	}
	w.each(func(r *teamRank) error {
		s := positions.Slice(whole, r.rank, size)
		in, out := make([]float32, product(s.Shape(whole))), make([]float32, product(s.Shape(whole)))
		move := func(from []float32, pass func(l *tensorops.List, t tensorops.Tensor) tensorops.Tensor, to []float64) error {
			if err := s.Take(in, from, whole); err != nil {
				return err
			}
			err := r.run(func(l *tensorops.List) {
				a := l.Alloc(tensorops.Float32, s.Shape(whole)...)
				l.Upload(a, tensorops.HostBytes(in))
				b := pass(l, a)
				l.Fetch(tensorops.HostBytes(out), b)
				l.Free(b)
			})
			s.Runs(whole, func(at, wholeAt, n int) {
				for i := range n { // each rank its own, or all the same
					if r.rank == 0 || sequence {
						to[wholeAt+i] = float64(out[at+i])
					}
				}
			})
			return err
		}
		err := move(xs, func(l *tensorops.List, x tensorops.Tensor) tensorops.Tensor {
			return stages.Only(r.stage.Forward(l, 1, &mb, x))
		}, y)
		if err != nil {
			return err
		}
		err = move(dys, func(l *tensorops.List, dy tensorops.Tensor) tensorops.Tensor {
			return stages.Only(r.stage.Backward(l, 1, mb.Index, dy))
		}, dx)
		if err != nil {
			return err
		}
		return r.run(func(l *tensorops.List) {
			r.stage.SumGrads(l)
			saved[r.rank] = r.stage.Grads(l)
		})
	})
	grads = w.join(saved)
	for _, name := range []string{m.Params[0].Name, "lm_head.weight", "model.norm.weight", "transformer.wpe.weight", "transformer.ln_f.weight",
		"transformer.ln_f.bias"} {
		delete(grads, name) // of other layers
	}
	return y, dx, grads
}

// A decoder layer on 2 and 4 ranks: its output, its input's gradient and its weights' gradients are
// the whole one's within 1e-6 of their norms.
func TestTensorParallelBlock(t *testing.T) {
	for _, cfg := range []stages.Config{
		{Family: stages.GPT2, Layers: 1, Hidden: 128, Heads: 8, KVHeads: 8, FFN: 512, Context: 32, Vocab: 64, Dropout: 0.1},
		{Family: stages.Llama, Layers: 1, Hidden: 128, Heads: 8, KVHeads: 2, FFN: 344, Context: 32, Vocab: 64, RopeTheta: 1e4},
		{Family: stages.Qwen3, Layers: 1, Hidden: 128, Heads: 8, KVHeads: 4, HeadDim: 32, FFN: 344, Context: 32, Vocab: 64, RopeTheta: 1e6},
	} {
		dev := newDevice(t, 2)
		m := newModel(t, cfg)
		y, dx, grads := blockPass(t, m, dev, 1, false)
		for _, size := range []int{2, 4} {
			for _, sequence := range []bool{false, true} {
				gotY, gotDX, got := blockPass(t, m, dev, size, sequence)
				what := fmt.Sprintf("%s, %d ranks, sequence %v", cfg.Family, size, sequence)
				t.Logf("%s: output %.2g, input's gradient %.2g, weights' %.2g", what, apart(gotY, y), apart(gotDX, dx),
					apart(together(got), together(grads)))
				if d := max(apart(gotY, y), apart(gotDX, dx)); !(d <= 1e-6) {
					t.Errorf("%s: output or input's gradient are off by %.3g of their norm", what, d)
				}
				for name, g := range grads {
					if d := apart(got[name], g); !(d <= 1e-6) {
						t.Errorf("%s, %s: the gradient is off by %.3g of its norm", what, name, d)
					}
				}
			}
		}
	}
}
