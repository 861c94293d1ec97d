package stages_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// splitModels have heads in all relations to the ranks, sizes that don't divide, and everything
// that families have of their own.
var splitModels = map[string]stages.Config{
	"gpt2": {Family: stages.GPT2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 41, Context: 8, Vocab: 19, Dropout: 0.1,
		Tie: true},
	"llama": {Family: stages.Llama, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 42, Context: 8, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000},
	"one kv head": {Family: stages.Llama, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 1, FFN: 40, Context: 8, Vocab: 21, Tie: true,
		RopeTheta: 1000, AttentionBias: true, MLPBias: true},
	"qwen2": {Family: stages.Qwen2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1,
		Tie: true, RopeTheta: 1000},
	"qwen3": {Family: stages.Qwen3, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 8, Vocab: 19,
		Dropout: 0.1, RopeTheta: 1000, AttentionBias: true, Window: 4, Full: []int{1}},
	"gpt2, mtp": {Family: stages.GPT2, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1, Tie: true,
		MTPLayers: 2, MTPWeight: 0.3},
	"llama, mtp": {Family: stages.Llama, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 8, Vocab: 23, RopeTheta: 1000,
		MTPLayers: 1, MTPWeight: 0.3},
	"smollm3": {Family: stages.SmolLM3, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, Tie: true,
		RopeTheta: 1000, MLPBias: true, NoRope: []int{1}, Window: 4, Full: []int{0}},
	"olmo2": {Family: stages.OLMo2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, AttentionBias: true},
	"olmo2, mtp": {Family: stages.OLMo2, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 1, FFN: 40, Context: 8, Vocab: 19, RopeTheta: 1000,
		MTPLayers: 1, MTPWeight: 0.3},
	"olmo3": {Family: stages.OLMo3, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 4, HeadDim: 10, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, RopeScaling: stages.RopeScaling{Type: "linear", Factor: 3}, WindowTheta: 500, Window: 4, Full: []int{1}},
	"granite": {Family: stages.Granite, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1, Tie: true,
		RopeTheta: 1000, EmbeddingScale: 3, ResidualScale: 0.4, LogitDivisor: 2, AttentionScale: 0.7},
	"example": {Family: stages.Example, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 41, Context: 8, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, NoRope: []int{1}, WindowTheta: 50, Window: 3, Full: []int{1}, ResidualScale: 0.4, AttentionScale: 0.7},
	"phi3": {Family: stages.Phi3, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1,
		RopeTheta: 1000, Window: 3},
	"gemma2": {Family: stages.Gemma2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 8, Vocab: 19, Dropout: 0.1,
		Tie: true, RopeTheta: 1000, Window: 3, Full: []int{1}, AttentionScale: 0.25, AttentionSoftCap: 2, LogitSoftCap: 3},
	"gemma3": {Family: stages.Gemma3, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 1, HeadDim: 8, FFN: 40, Context: 8, Vocab: 19,
		AttentionBias: true,
		RopeTheta:     1000, WindowTheta: 100, Window: 3, Full: []int{1}, LogitSoftCap: 3, MTPLayers: 1, MTPWeight: 0.3},
	"qwen3_5_text": {Family: stages.Qwen35, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 8, Vocab: 19,
		Dropout: 0.1, RopeTheta: 1000, RopeScaling: stages.RopeScaling{Partial: 0.4}, Delta: stages.DeltaConfig{Layers: []int{1},
			KeyHeads: 4, ValueHeads: 8, KeyWidth: 3, ValueWidth: 5, Taps: 4}},
	"gemma4": {Family: stages.Gemma4, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 6, FullHeadDim: 10, FullKVHeads: 1,
		ValuesAreKeys: true,
		FFN:           40, Context: 8, Vocab: 19, Dropout: 0.1, Tie: true, RopeTheta: 1000, WindowTheta: 100, Window: 3, Full: []int{1},
		LogitSoftCap: 3,
		RopeScaling:  stages.RopeScaling{Type: "proportional", Partial: 0.5}},
	"gpt2, adapter": {Family: stages.GPT2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 41, Context: 8, Vocab: 19, Dropout: 0.1,
		Tie: true, Adapter: &stages.Adapter{Rank: 3, Alpha: 1, Dropout: 0.2, Targets: []string{stages.AllLinear}}},
	"llama, dora": {Family: stages.Llama, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 1, FFN: 42, Context: 8, Vocab: 19,
		RopeTheta: 1000, MLPBias: true, AttentionBias: true, Adapter: &stages.Adapter{Rank: 3, Alpha: 2, DoRA: true,
			Targets: []string{stages.AllLinear}}},
	"one kv head, adapter": {Family: stages.Llama, Layers: 1, Hidden: 24, Heads: 4, KVHeads: 1, FFN: 40, Context: 8, Vocab: 21,
		RopeTheta: 1000, AttentionBias: true, MLPBias: true, MTPLayers: 1, MTPWeight: 0.3, Adapter: &stages.Adapter{Rank: 3, Alpha: 6,
			Dropout: 0.2, Targets: []string{".*_proj|lm_head"}, Save: []string{"embed_tokens", "input_layernorm"}}},
	"mistral, own": {Family: stages.Mistral, Layers: 1, Hidden: 20, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 30, Context: 8, Vocab: 17,
		RopeTheta: 100, Window: 3},
}

// team is a model on the ranks of a tensor-parallel group, cut into chunks of which each rank has
// its slice.
type team struct {
	t     testing.TB
	model *stages.Model
	ranks []*teamRank
	group []*collective.Group // by rank
	leave func(err error)     // other groups that its ranks are in
	specs []stages.ChunkSpec
}

type teamRank struct {
	*team
	rank   int
	stage  *stages.Stage
	stream tensorops.Stream
	report []stages.Report // of the microbatches, since they were asked for
}

// newTeam: a size of 1 is a stage that has all.
func newTeam(t testing.TB, dev tensorops.Device, m *stages.Model, size int, cuts []int, o stages.Options) *team {
	return newTeamBy(t, dev, m, size, cuts, func(int) stages.Options { return o })
}

// newTeamBy is newTeam with options by rank.
func newTeamBy(t testing.TB, dev tensorops.Device, m *stages.Model, size int, cuts []int, optionsOf func(rank int) stages.Options) *team {
	w := &team{t: t, model: m, group: collective.Local("tensor", size)}
	from := 0
	for i, to := range append(slices.Clone(cuts), len(m.Symbols())) {
		w.specs = append(w.specs, stages.ChunkSpec{Chunk: i, First: from, Last: to})
		from = to
	}
	for rank := range size {
		s := dev.NewStream(fmt.Sprintf("tensor rank %d", rank))
		t.Cleanup(s.Close)
		o := optionsOf(rank)
		o.Tensor.Group = nil
		if size > 1 {
			o.Tensor.Group = w.group[rank]
		}
		st, err := stages.NewStage(m, s, w.specs, o)
		if err != nil {
			t.Fatal(err)
		}
		w.ranks = append(w.ranks, &teamRank{team: w, rank: rank, stage: st, stream: s})
	}
	w.each(func(r *teamRank) error { return r.stage.Load(largeWeights, false) })
	return w
}

// largeWeights are those that gradientModels have, by slices.
var largeWeights = stages.Sliced(func(p *stages.Param, part string, dst []float32) error {
	if err := stages.InitWeights(5)(p, part, dst); err != nil {
		return err
	}
	factor := float32(4)
	if strings.Contains(p.Name, "_norm") || strings.HasSuffix(p.Name, stages.AdapterMagnitude) {
		factor = 1
	}
	for i := range dst {
		dst[i] = dst[i]*factor + 0.05*float32(math.Sin(float64(i)))
	}
	return nil
})

// each runs all ranks at once.
func (w *team) each(do func(r *teamRank) error) {
	w.t.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(w.ranks))
	for i, r := range w.ranks {
		all.Go(func() {
			if errs[i] = do(r); errs[i] != nil {
				w.group[i].Leave(errs[i]) // so that the others don't wait for it
				if w.leave != nil {
					w.leave(errs[i])
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

func (r *teamRank) run(record func(l *tensorops.List)) error {
	l := r.stream.NewList()
	record(l)
	return tensorops.Run(r.stream, l)
}

// passes run microbatches forward and back, and say the loss of each.
func (r *teamRank) passes(mbs []stages.Microbatch, separate bool) (losses []float64, err error) {
	for i := range mbs {
		var x, dy tensorops.Tensor
		last := len(r.specs) - 1
		for v := range r.specs {
			if err := r.run(func(l *tensorops.List) { x = stages.Only(r.stage.Forward(l, v, &mbs[i], x)) }); err != nil {
				return nil, err
			}
		}
		losses = append(losses, r.stage.TargetLoss(last, mbs[i].Index))
		r.report = append(r.report, r.stage.Report(last, mbs[i].Index))
		if !mbs[i].Train {
			r.stage.Finish(last, mbs[i].Index)
			continue
		}
		for v := last; v >= 0; v-- {
			err := r.run(func(l *tensorops.List) {
				if !separate {
					dy = stages.Only(r.stage.Backward(l, v, mbs[i].Index, dy))
					return
				}
				dy = stages.Only(r.stage.InputGrad(l, v, mbs[i].Index, dy))
			})
			if err == nil && separate {
				err = r.run(func(l *tensorops.List) { r.stage.WeightGrad(l, v, mbs[i].Index) })
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return losses, nil
}

// grads are the sums over microbatches of the whole model's gradients, put together of what the
// ranks have, and the losses.
func (w *team) grads(mbs []stages.Microbatch, separate bool) (grads map[string][]float64, losses []float64) {
	w.t.Helper()
	saved := make([][]stages.Saved, len(w.ranks))
	all := make([][]float64, len(w.ranks))
	w.each(func(r *teamRank) (err error) {
		if all[r.rank], err = r.passes(mbs, separate); err != nil {
			return err
		}
		return r.run(func(l *tensorops.List) {
			r.stage.SumGrads(l)
			saved[r.rank] = r.stage.Grads(l)
		})
	})
	for rank, losses := range all {
		if !slices.Equal(losses, all[0]) {
			w.t.Errorf("rank %d has the losses %v, rank 0 %v", rank, losses, all[0])
		}
	}
	return w.join(saved), all[0]
}

// join puts tensors together. What several ranks have must be the same bits.
func (w *team) join(saved [][]stages.Saved) map[string][]float64 {
	w.t.Helper()
	out := map[string][]float64{}
	type place struct {
		name, part string
		at         int
	}
	seen := map[place]float32{}
	have := map[string]map[int]bool{}
	for rank, all := range saved {
		for _, s := range all {
			p := w.model.Params[s.Index]
			if out[s.Name] == nil {
				out[s.Name], have[s.Name] = make([]float64, p.Len()), map[int]bool{}
			}
			s.Slice.Runs(p.Shape, func(at, wholeAt, n int) {
				for i := range n {
					k, v := place{s.Name, s.Part, wholeAt + i}, s.Data[at+i]
					if first, known := seen[k]; known {
						if first != v {
							w.t.Errorf("%s %s[%d]: rank %d has %g, another one %g", s.Name, s.Part, wholeAt+i, rank, v, first)
						}
						continue
					}
					seen[k] = v
					have[s.Name][wholeAt+i] = true
					out[s.Name][wholeAt+i] += float64(v)
				}
			})
		}
	}
	for name, v := range out {
		if len(have[name]) != len(v) {
			w.t.Errorf("%s: the ranks have %d of %d numbers", name, len(have[name]), len(v))
		}
	}
	return out
}

// apart is the norm of the difference of two vectors by that of the second.
func apart(a, b []float64) float64 {
	var d, n float64
	for i := range b {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += b[i] * b[i]
	}
	return math.Sqrt(d / max(n, 1e-30))
}

// together is all gradients as one vector.
func together(grads map[string][]float64) (all []float64) {
	for _, name := range slices.Sorted(maps.Keys(grads)) {
		all = append(all, grads[name]...)
	}
	return all
}

// compare holds the gradients and losses of two ways to train to a tolerance: all of them
// together, and those of a parameter to some times of that.
func compare(t *testing.T, what string, got, want map[string][]float64, losses, wantLosses []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d gradients of %d", what, len(got), len(want))
	}
	if d := apart(together(got), together(want)); !(d <= tolerance) {
		t.Errorf("%s: the gradient is off by %.3g of its norm", what, d)
	}
	for name, g := range want {
		if d := apart(got[name], g); !(d <= 5*tolerance) {
			t.Errorf("%s, %s: the gradient is off by %.3g of its norm", what, name, d)
		}
	}
	for i, l := range wantLosses {
		if !(math.Abs(losses[i]-l) <= tolerance*math.Abs(l)) {
			t.Errorf("%s: loss %d is %.9g, of the whole model %.9g", what, i, losses[i], l)
		}
	}
}

// In float64 the gradients of a split model are the whole one's to many digits, so nothing is
// left out, counted twice, or taken from elsewhere; dropout drops the same elements.
func TestTensorParallelIsTheWhole(t *testing.T) {
	for name, cfg := range splitModels {
		t.Run(name, func(t *testing.T) {
			dev := ref.New()
			t.Cleanup(dev.Close)
			m := newModel(t, cfg)
			o := stages.Options{Seed: 5, Optimizer: adamw}
			mbs := microbatches(cfg, 3, 4, 2)
			mbs[1].Recompute = true
			want, losses := newTeam(t, dev, m, 1, nil, o).grads(mbs, false)
			for _, size := range []int{2, 4} {
				for _, sequence := range []bool{false, true} {
					o.Tensor.Sequence = sequence
					w := newTeam(t, dev, m, size, []int{2}, o)
					got, gotLosses := w.grads(mbs, sequence)
					compare(t, fmt.Sprintf("%d ranks, sequence %v", size, sequence), got, want, gotLosses, losses, 1e-7)
				}
			}
		})
	}
}

// In float32 they are off by rounding, in bfloat16 by as much as the whole model's are.
func TestTensorParallelGradients(t *testing.T) {
	for name, cfg := range splitModels {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(t, 2)
			m := newModel(t, cfg)
			mbs := microbatches(cfg, 3, 4, 2)
			mbs[0].Recompute = true
			var exact map[string][]float64
			for _, o := range []stages.Options{
				{Pack: true},
				{StepTokens: 4 * cfg.Context, Logits: 3 * cfg.Vocab},
				{BF16: true, Copies: true},
				{BF16: true, Residual: tensorops.BFloat16},
				{BF16: true, Copies: true, LowBias: true, Residual: tensorops.BFloat16},
			} {
				o.Seed, o.Optimizer = 5, adamw
				want, losses := newTeam(t, dev, m, 1, nil, o).grads(mbs, false)
				if !o.BF16 {
					exact = want
				}
				rounding := apart(together(want), together(exact))
				for _, size := range []int{2, 4} {
					for _, sequence := range []bool{false, true} {
						o.Tensor.Sequence = sequence
						got, gotLosses := newTeam(t, dev, m, size, []int{1, 2}, o).grads(mbs, !sequence)
						what := fmt.Sprintf("%d ranks, sequence %v, bfloat16 %v, residual %v", size, sequence, o.BF16, o.Residual)
						t.Logf("%s: off by %.2g", what, apart(together(got), together(want)))
						if !o.BF16 {
							compare(t, what, got, want, gotLosses, losses, 2e-6)
							continue
						}
						if d := apart(together(got), together(exact)); !(d <= 1.5*rounding) {
							t.Errorf("%s: the gradient is off float32's by %.3g of its norm, of the whole model by %.3g", what, d, rounding)
						}
						for i, l := range losses {
							if !(math.Abs(gotLosses[i]-l) <= 0.01*l) {
								t.Errorf("%s: loss %d is %.9g, of the whole model %.9g", what, i, gotLosses[i], l)
							}
						}
					}
				}
			}
		})
	}
}

// step trains on microbatches, as one process would: norms are added in the model's order, and
// within a parameter in that of ranks.
func (w *team) step(count int, mbs []stages.Microbatch) (loss, norm float64) {
	w.t.Helper()
	reports, norms := make([]*stages.Accumulator, len(w.ranks)), make([][]stages.Norm, len(w.ranks))
	w.each(func(r *teamRank) error {
		reports[r.rank], r.report = stages.NewAccumulator(), nil
		if _, err := r.passes(mbs, false); err != nil {
			return err
		}
		for i, report := range r.report {
			if err := reports[r.rank].Add(mbs[i].Index, report); err != nil {
				return err
			}
		}
		err := r.run(r.stage.GradNorms)
		norms[r.rank] = r.stage.Norms(nil)
		return err
	})
	byParam := make([]float64, len(w.model.Params))
	for _, part := range norms {
		for _, n := range part {
			byParam[n.Param] += n.Squared
		}
	}
	for _, n := range byParam {
		norm += n
	}
	final := stages.LossScale(reports[0].Targets())
	u := stages.Update{Count: count, LR: 1e-3, GradScale: final * math.Min(1, 0.5/(math.Sqrt(norm)*final))}
	w.each(func(r *teamRank) error {
		return r.run(func(l *tensorops.List) { r.stage.Apply(l, u) })
	})
	return reports[0].Loss(), norm
}

// Twenty steps of AdamW go where the whole model's go, and where they went before.
func TestTensorParallelTrains(t *testing.T) {
	for name, cfg := range splitModels {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(t, 2)
			m := newModel(t, cfg)
			type result struct{ loss, norm float64 }
			train := func(size int, sequence bool) (rs []result) {
				o := stages.Options{Seed: 5, Optimizer: adamw, Pack: true, StepTokens: 4 * cfg.Context}
				o.Tensor.Sequence = sequence
				w := newTeam(t, dev, m, size, []int{2}, o)
				w.each(func(r *teamRank) error { return r.stage.Load(stages.InitWeights(5), false) })
				for step := range 20 {
					loss, norm := w.step(step+1, microbatches(cfg, int64(step+1), 4, 2))
					rs = append(rs, result{loss, norm})
				}
				return rs
			}
			want := train(1, false)
			for _, size := range []int{2, 4} {
				got := train(size, size == 4)
				for i, r := range got {
					if !(math.Abs(r.loss-want[i].loss) <= 1e-5*want[i].loss) || !(math.Abs(r.norm-want[i].norm) <= 1e-3*want[i].norm) {
						t.Errorf("%d ranks, step %d: %+v, the whole model %+v", size, i+1, r, want[i])
					}
				}
				if again := train(size, size == 4); !slices.Equal(got, again) {
					t.Errorf("%d ranks: %v, and again %v", size, got, again)
				}
			}
		})
	}
}
