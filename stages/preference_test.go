package stages_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// preferenceLosses are one of each loss.
var preferenceLosses = map[string]*stages.Preference{
	"dpo":   {Loss: stages.DPO, Beta: 0.3, LabelSmoothing: 0.1},
	"ipo":   {Loss: stages.IPO, Beta: 0.4},
	"orpo":  {Loss: stages.ORPO, Beta: 0.5},
	"simpo": {Loss: stages.SimPO, Beta: 2, Gamma: 0.5},
	"kto":   {Loss: stages.KTO, Beta: 0.3, DesirableWeight: 1.3, UndesirableWeight: 0.7},
}

// preferenceModels have what a head may have: a tied weight, dropout, a soft cap, and adapters of the head.
var preferenceModels = map[string]stages.Config{
	"gpt2": {Family: stages.GPT2, Layers: 1, Hidden: 6, Heads: 3, KVHeads: 3, FFN: 7, Context: 5, Vocab: 7, Dropout: 0.2, Tie: true},
	"gemma2": {Family: stages.Gemma2, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 6, FFN: 9, Context: 5, Vocab: 7, Tie: true,
		RopeTheta: 100, Window: 2, AttentionScale: 0.25, AttentionSoftCap: 1.5, LogitSoftCap: 2.5},
	"llama, adapter": {Family: stages.Llama, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7, RopeTheta: 100,
		Adapter: &stages.Adapter{Rank: 2, Alpha: 4, Dropout: 0.3, Targets: []string{`.*_proj|lm_head`}}},
}

// preferred makes microbatches of answers of a number of lengths, with the log-probabilities of a reference model. Those of every second
// answer are far above the model's, so that KTO's estimate of the KL divergence is 0.
func preferred(c stages.Config, p *stages.Preference, step int64, sequences, per int) []stages.Microbatch {
	mbs := microbatches(c, step, sequences, per)
	for k := range mbs {
		mb := &mbs[k]
		reference := make([]float64, 2*per)
		for i := range per {
			for at := range c.Context {
				if at < 1+i%2 || at >= c.Context-(k+i)%2 {
					mb.Targets[i*c.Context+at] = tensorops.IgnoreTarget
				}
			}
			reference[2*i], reference[2*i+1] = -4-0.7*float64((i+k)%3), float64((i/2+k)%2)
			if i%2 == 1 {
				reference[2*i] = -1
			}
		}
		if p.NeedsReference() {
			mb.Fields = []tensorops.Array{{Shape: []int{per, 2}, Double: reference}}
		}
	}
	return mbs
}

// preferenceLoss sums the losses of microbatches, and computes the gradients.
func (w *whole) preferenceLoss(mbs []stages.Microbatch) (sum float64) {
	for i := range mbs {
		w.run(0, func(l *tensorops.List) { w.stages[0].Forward(l, 0, &mbs[i]) })
		loss, _ := w.stages[0].Loss(0, mbs[i].Index)
		sum += loss
		w.run(0, func(l *tensorops.List) { w.stages[0].Backward(l, 0, mbs[i].Index) })
	}
	return sum
}

func (w *whole) preferenceGrads(mbs []stages.Microbatch) (float64, map[string][]float64) {
	w.run(0, w.stages[0].ClearGrads)
	loss := w.preferenceLoss(mbs)
	var saved []stages.Saved
	w.run(0, func(l *tensorops.List) { saved = w.stages[0].Grads(l) })
	out := map[string][]float64{}
	for _, s := range saved {
		if out[s.Name] == nil {
			out[s.Name] = make([]float64, len(s.Data))
		}
		for i, v := range s.Data {
			out[s.Name][i] += float64(v)
		}
	}
	return loss, out
}

// TestPreferenceGradientIsTheSlope: the whole model's gradient against central differences in float64.
func TestPreferenceGradientIsTheSlope(t *testing.T) {
	if raceDetector {
		t.Skip("it computes in one goroutine")
	}
	for name, c := range preferenceModels {
		for loss, p := range preferenceLosses {
			t.Run(name+", "+loss, func(t *testing.T) {
				dev := ref.New()
				t.Cleanup(dev.Close)
				w := newWholeWith(t, dev, c, stages.Options{Seed: 5, Optimizer: adamw, Preference: p})
				mbs := preferred(c, p, 3, 4, 4)
				w.checkSlopes(t, mbs)
			})
		}
	}
}

// checkSlopes compares the gradients with central differences.
func (w *whole) checkSlopes(t *testing.T, mbs []stages.Microbatch) {
	t.Helper()
	_, grads := w.preferenceGrads(mbs)
	for name, g := range grads {
		scale := 0.0
		for _, v := range g {
			scale = math.Max(scale, math.Abs(v))
		}
		for j := 0; j < len(g); j += 1 + len(g)/2 {
			slope := func(h float32) float64 {
				v := w.weights[name]
				at := v[j]
				defer func() { v[j] = at; w.load() }()
				v[j] = at + h
				up := float64(v[j])
				w.load()
				plus := w.preferenceLoss(mbs)
				v[j] = at - h
				w.load()
				return (plus - w.preferenceLoss(mbs)) / (up - float64(v[j]))
			}
			want := (4*slope(1.0/8192) - slope(1.0/4096)) / 3
			if math.Abs(g[j]-want) > 1e-6*scale {
				t.Errorf("%s[%d]: gradient %.9g, slope %.9g of %.3g", name, j, g[j], want, scale)
			}
		}
	}
}

// checkAgainst compares the loss and the gradients with those of the oracle.
func (w *whole) checkAgainst(t *testing.T, what string, mbs []stages.Microbatch, want float64, grads map[string][]float64) {
	t.Helper()
	got, g := w.preferenceGrads(mbs)
	if math.Abs(got-want) > 1e-6*math.Abs(want) {
		t.Errorf("%s: the loss is %.9g, want %.9g", what, got, want)
	}
	for name := range g {
		scale, worst := 0.0, 0.0
		for j, v := range g[name] {
			scale, worst = math.Max(scale, math.Abs(grads[name][j])), math.Max(worst, math.Abs(v-grads[name][j]))
		}
		if worst > 1e-5*scale {
			t.Errorf("%s, %s: off by %.3g of %.3g", what, name, worst, scale)
		}
	}
}

// TestPreferenceMatchesOracle: the CPU's loss and gradients against the float64 oracle's, however many logits exist at a time.
func TestPreferenceMatchesOracle(t *testing.T) {
	for name, c := range preferenceModels {
		for loss, p := range preferenceLosses {
			oracle := ref.New()
			t.Cleanup(oracle.Close)
			mbs := preferred(c, p, 3, 40, 40)
			want, grads := newWholeWith(t, oracle, c, stages.Options{Seed: 5, Optimizer: adamw, Preference: p}).preferenceGrads(mbs)
			for _, later := range []bool{false, true} {
				for _, logits := range []int{0, 64 * c.Vocab, 128 * c.Vocab} { // all, or some of the rows
					mbs[0].HeadLater = later
					o := stages.Options{Seed: 5, Optimizer: adamw, Preference: p, Logits: logits}
					what := fmt.Sprintf("%s, %s, later %v, %d logits", name, loss, later, logits)
					newWholeWith(t, newDevice(t, 2), c, o).checkAgainst(t, what, mbs, want, grads)
				}
			}
		}
	}
}

// TestPreferenceLayouts: the layout changes no bit.
func TestPreferenceLayouts(t *testing.T) {
	for _, c := range families[:2] {
		m := newModel(t, c)
		for loss, p := range preferenceLosses {
			train := func(cuts, ranks []int, split, later bool) (all []float64) {
				pipe := newPipeOn(t, newDevice(t, 2), m, cuts, ranks, stages.Options{Seed: 5, Optimizer: adamw, Preference: p})
				for step := range 3 {
					mbs := preferred(c, p, int64(step+1), 8, 4)
					for i := range mbs {
						mbs[i].HeadLater, mbs[i].Recompute = later, split
						if p.NeedsReference() && len(cuts) > 0 { // only the chunk with the loss reads it
							mbs[i].Fields = nil
						}
					}
					loss, norm := pipe.preferenceStep(step+1, mbs, preferred(c, p, int64(step+1), 8, 4), split)
					all = append(all, loss, norm)
				}
				return all
			}
			want := train(nil, []int{0}, false, false)
			for _, split := range []bool{false, true} {
				if got := train([]int{2}, []int{0, 1}, split, split); !slices.Equal(got, want) {
					t.Errorf("%s, %s, split %v: %v, want %v", c.Family, loss, split, got, want)
				}
			}
		}
	}
}

// preferenceStep is step for a loss that reads fields: those of the microbatches last, which the last chunk gets.
func (p *pipe) preferenceStep(count int, mbs, last []stages.Microbatch, split bool) (loss, norm float64) {
	acc := stages.NewAccumulator()
	end := len(p.stages) - 1
	for i := range mbs {
		var x, dy tensorops.Tensor
		for v, s := range p.stages {
			mb := mbs[i]
			if v == end {
				mb.Fields = last[i].Fields
			}
			p.run(v, func(l *tensorops.List) { x = stages.Only(s.Forward(l, v, &mb, x)) })
		}
		if err := acc.Add(i, p.stages[end].Report(end, i)); err != nil {
			p.t.Fatal(err)
		}
		for v := end; v >= 0; v-- {
			p.run(v, func(l *tensorops.List) {
				if !split {
					dy = stages.Only(p.stages[v].Backward(l, v, i, dy))
					return
				}
				dy = stages.Only(p.stages[v].InputGrad(l, v, i, dy))
			})
			if split {
				p.run(v, func(l *tensorops.List) { p.stages[v].WeightGrad(l, v, i) })
			}
		}
	}
	norm = p.norm()
	u := stages.Update{Count: count, LR: 1e-2, GradScale: stages.LossScale(acc.Targets())}
	p.eachStage(func(v int, s *stages.Stage) { p.run(v, func(l *tensorops.List) { s.Apply(l, u) }) })
	return acc.Loss(), norm
}

// TestLogProbabilities: without a loss, a forward-only run collects the log-probability of each answer, which padding and the other
// answers do not change.
func TestLogProbabilities(t *testing.T) {
	for name, c := range preferenceModels {
		w := newWholeWith(t, newDevice(t, 2), c, stages.Options{Inference: true, Preference: &stages.Preference{}})
		mb := preferred(c, nil, 3, 6, 6)[0]
		mb.Train, mb.Collect = false, true
		w.run(0, func(l *tensorops.List) { w.stages[0].Forward(l, 0, &mb) })
		out := w.stages[0].Outputs(0, mb.Index)
		if len(out) != 1 || out[0].Name != stages.LogProbabilities || len(out[0].Double) != 12 {
			t.Fatalf("%s: outputs %+v", name, out)
		}
		sum, tokens := w.stages[0].Loss(0, mb.Index)
		w.stages[0].Finish(0, mb.Index)
		plain := newWholeWith(t, newDevice(t, 2), c, stages.Options{Inference: true})
		for i := range 6 {
			one := mb
			one.Sequences, one.Collect = 1, false
			one.Tokens, one.Targets = mb.Tokens[i*c.Context:(i+1)*c.Context], mb.Targets[i*c.Context:(i+1)*c.Context]
			plain.run(0, func(l *tensorops.List) { plain.stages[0].Forward(l, 0, &one) })
			loss, n := plain.stages[0].Loss(0, one.Index)
			plain.stages[0].Finish(0, one.Index)
			if got := out[0].Double[2*i : 2*i+2]; math.Abs(got[0]+loss) > 1e-12 || got[1] != n {
				t.Errorf("%s: answer %d has %v, alone the loss %g of %g tokens", name, i, got, loss, n)
			}
			sum, tokens = sum-loss, tokens-n
		}
		if math.Abs(sum) > 1e-12 || tokens != 0 {
			t.Errorf("%s: the report differs by %g of %g tokens", name, sum, tokens)
		}
	}
}

// TestPreferenceRefusals: models and microbatches that cannot have the loss are refused.
func TestPreferenceRefusals(t *testing.T) {
	c := preferenceModels["gpt2"]
	c.MTPLayers, c.MTPWeight = 1, 0.3
	m := newModel(t, c)
	o := stages.Options{Optimizer: adamw, Preference: preferenceLosses["dpo"]}
	if _, err := stages.NewStage(m, tensorops.NewDryStream(), []stages.ChunkSpec{{Last: len(m.Symbols())}}, o); !errors.Is(err,
		stages.ErrModel) {
		t.Errorf("multi-token prediction: %v", err)
	}
	experts := stages.Config{Family: stages.Mixtral, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 5, Vocab: 7,
		RopeTheta: 100, Experts: stages.ExpertConfig{Count: 2, PerToken: 1, Width: 9, Renormalize: true, AuxLossWeight: 0.1}}
	if err := newModel(t, experts).CheckPreference(); !errors.Is(err, stages.ErrModel) {
		t.Errorf("a balance loss: %v", err)
	}
	for _, fields := range [][]tensorops.Array{nil, {{Shape: []int{3, 2}, Double: make([]float64, 6)}}} {
		mb := preferred(preferenceModels["gpt2"], o.Preference, 1, 4, 4)[0]
		mb.Fields = fields
		w := newWholeWith(t, newDevice(t, 1), preferenceModels["gpt2"], o)
		s := w.stream[0]
		l := s.NewList()
		w.stages[0].Forward(l, 0, &mb)
		if err := tensorops.Run(s, l); !errors.Is(err, stages.ErrInput) {
			t.Errorf("fields %v: %v", fields, err)
		}
	}
}
