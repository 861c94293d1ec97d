package stages_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// contextModels are what ranks can share the positions of.
var contextModels = map[string]stages.Config{
	"gpt2": {Family: stages.GPT2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 41, Context: 24, Vocab: 19, Dropout: 0.1, Tie: true},
	"llama": {Family: stages.Llama, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 42, Context: 24, Vocab: 19, Dropout: 0.2,
		RopeTheta: 1000},
	"qwen3": {Family: stages.Qwen3, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 24, Vocab: 19, RopeTheta: 1000,
		AttentionBias: true},
	"example": {Family: stages.Example, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 41, Context: 24, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, NoRope: []int{1}, WindowTheta: 50, Window: 7, Full: []int{1}, ResidualScale: 0.4, AttentionScale: 0.7},
	"olmo2": {Family: stages.OLMo2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 24, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000},
	// Windows that end within a block of 3 positions or more, and that reach over several.
	"short window": {Family: stages.Mistral, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 20, Context: 24, Vocab: 19,
		RopeTheta: 1000, Window: 2, Dropout: 0.1},
	"gemma2": {Family: stages.Gemma2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 24, Vocab: 19,
		RopeTheta: 1000,
		Window:    11, Full: []int{1}, AttentionScale: 0.5, AttentionSoftCap: 2, LogitSoftCap: 3, Tie: true},
}

// contextGrads are the gradients of all ranks of a context group, each of which is a tensor group, and their losses.
func contextGrads(t *testing.T, dev tensorops.Device, m *stages.Model, size, tensor int, cuts []int, o stages.Options,
	mbs []stages.Microbatch, separate bool) (map[string][]float64, []float64) {
	t.Helper()
	groups := make([][]*collective.Group, tensor)
	for i := range groups {
		groups[i] = collective.Local(fmt.Sprintf("context of %d", i), size)
	}
	grads, losses := make([]map[string][]float64, size), make([][]float64, size)
	var all sync.WaitGroup
	for rank := range size {
		w := newTeamBy(t, dev, m, tensor, cuts, func(place int) stages.Options {
			own := o
			own.Context.Group = groups[place][rank]
			return own
		})
		w.leave = func(err error) {
			for _, g := range groups {
				g[rank].Leave(err)
			}
		}
		all.Go(func() { grads[rank], losses[rank] = w.grads(mbs, separate) })
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for rank := 1; rank < size; rank++ {
		if !slices.Equal(losses[rank], losses[0]) {
			t.Errorf("rank %d has the losses %v, rank 0 %v", rank, losses[rank], losses[0])
		}
		for name, g := range grads[rank] {
			for i, v := range g {
				grads[0][name][i] += v
			}
		}
	}
	return grads[0], losses[0]
}

// In float64 the gradients of ranks that share positions add up to the whole model's, to many digits.
func TestContextParallelIsTheWhole(t *testing.T) {
	for name, cfg := range contextModels {
		t.Run(name, func(t *testing.T) {
			dev := ref.New()
			t.Cleanup(dev.Close)
			m := newModel(t, cfg)
			o := stages.Options{Seed: 5, Optimizer: adamw}
			mbs := microbatches(cfg, 3, 4, 2)
			mbs[1].Recompute = true
			want, losses := newTeam(t, dev, m, 1, nil, o).grads(mbs, false)
			for _, c := range []struct {
				context, tensor    int
				sequence, separate bool
			}{{2, 1, false, false}, {3, 1, false, true}, {4, 1, false, false}, {12, 1, false, true}, {2, 2, false, true}, {2, 2, true, false},
				{3, 4, true, true}} {
				o.Tensor.Sequence = c.sequence
				if mbs[0].Positions/c.context%c.tensor != 0 {
					t.Fatalf("%+v: %d positions", c, mbs[0].Positions)
				}
				got, gotLosses := contextGrads(t, dev, m, c.context, c.tensor, []int{2}, o, mbs, c.separate)
				compare(t, fmt.Sprintf("%+v", c), got, want, gotLosses, losses, 1e-7)
			}
		})
	}
}

// In float32 they are off by rounding, in bfloat16 by as much as the whole model's are. They are the same bits when
// computed again, and whether what goes round does so beside computing or not.
func TestContextParallelGradients(t *testing.T) {
	for name, cfg := range contextModels {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(t, 2)
			m := newModel(t, cfg)
			mbs := microbatches(cfg, 3, 4, 2)
			mbs[0].Recompute = true
			var exact map[string][]float64
			for _, o := range []stages.Options{
				{Pack: true},
				{BF16: true, Copies: true},
				{BF16: true, Residual: tensorops.BFloat16},
			} {
				o.Seed, o.Optimizer = 5, adamw
				want, losses := newTeam(t, dev, m, 1, nil, o).grads(mbs, false)
				if !o.BF16 {
					exact = want
				}
				rounding := apart(together(want), together(exact))
				for _, size := range []int{2, 4} {
					got, gotLosses := contextGrads(t, dev, m, size, 1, []int{1, 2}, o, mbs, size == 2)
					what := fmt.Sprintf("%d ranks, bfloat16 %v, residual %v", size, o.BF16, o.Residual)
					off := apart(together(got), together(want))
					t.Logf("%s: off by %.2g", what, off)
					if !o.BF16 {
						compare(t, what, got, want, gotLosses, losses, 2e-6)
					} else if d := apart(together(got), together(exact)); !(d <= 1.5*rounding) {
						t.Errorf("%s: the gradient is off float32's by %.3g of its norm, of the whole model by %.3g", what, d, rounding)
					}
					alone := o
					alone.NoOverlap = true
					again, againLosses := contextGrads(t, dev, m, size, 1, []int{1, 2}, alone, mbs, size != 2)
					if !slices.Equal(gotLosses, againLosses) || apart(together(again), together(got)) != 0 {
						t.Errorf("%s: other bits when computed again, without overlap", what)
					}
				}
			}
		})
	}
}

func TestCheckContext(t *testing.T) {
	base := contextModels["gpt2"]
	for _, c := range []struct {
		name   string
		size   int
		change func(c *stages.Config)
		says   string
	}{
		{"alone", 1, func(c *stages.Config) { c.Context = 7 }, ""},
		{"fits", 4, func(*stages.Config) {}, ""},
		{"positions", 5, func(*stages.Config) {}, "the 24 positions of a sequence do not divide into 10 blocks"},
		{"prediction", 2, func(c *stages.Config) { c.MTPLayers, c.MTPWeight = 1, 0.3 }, "multi-token prediction"},
		{"window", 2, func(c *stages.Config) { *c = contextModels["short window"] }, ""},
		{"experts", 2, func(c *stages.Config) { *c = withBiases }, ""},
		{"latent attention", 5, func(c *stages.Config) { *c = deepSeek }, "it is not supported with latent attention"},
	} {
		cfg := base
		c.change(&cfg)
		err := newModel(t, cfg).CheckContext(c.size)
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	// A microbatch whose positions don't divide is refused.
	dev := newDevice(t, 1)
	group := collective.Local("context", 2)
	w := newTeamBy(t, dev, newModel(t, base), 1, nil, func(int) stages.Options {
		return stages.Options{Optimizer: adamw, Context: stages.ContextParallel{Group: group[0]}}
	})
	mb := stages.Microbatch{Step: 1, Sequences: 1, Positions: 6, Tokens: make([]int32, 6), Targets: make([]int32, 6)}
	err := w.ranks[0].run(func(l *tensorops.List) { w.ranks[0].stage.Forward(l, 0, &mb) })
	if !errors.Is(err, stages.ErrInput) || !strings.Contains(err.Error(), "6 positions") {
		t.Errorf("6 positions over 2 ranks: %v", err)
	}
}
