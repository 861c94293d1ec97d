package stages_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// globalFamily balances the loads of a step.
var globalFamily = balancedGlobally(deepSeek)

func balancedGlobally(c stages.Config) stages.Config {
	c.Experts.AuxLossWeight, c.Experts.Balance.Global = 0.5, true
	return c
}

// TestGlobalBalanceGradient: the gradient of a balance loss over the step's microbatches is its slope, with softmax and with sigmoids.
func TestGlobalBalanceGradient(t *testing.T) {
	dev := ref.New()
	t.Cleanup(dev.Close)
	small := stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 9, Context: 4, Vocab: 7,
		RopeTheta: 100, Experts: stages.ExpertConfig{Count: 6, PerToken: 1, Width: 5}}
	sigmoids := deepSeek
	sigmoids.Dropout = 0
	for what, c := range map[string]stages.Config{"softmax": small, "sigmoids": sigmoids} {
		c.Experts.AuxLossWeight, c.Experts.Balance.Global = 3, true
		w := newWhole(t, dev, c)
		mbs := []stages.Microbatch{{Step: 1, Sequences: 2, Positions: 4, Tokens: []int32{1, 2, 3, 4, 5, 6, 1, 2},
			Targets: []int32{2, 3, 4, 5, 6, 0, 1, 3}, Train: true},
			{Step: 1, Index: 1, Sequences: 1, Positions: 3, Tokens: []int32{5, 5, 1}, Targets: []int32{5, 1, 2}, Train: true,
				Recompute: true}}
		objective := func() float64 {
			w.run(0, w.stages[0].ClearGrads)
			sum := 0.0
			for i := range mbs {
				plain := mbs[i]
				plain.Recompute = false // the objective reads what recomputation drops
				sum += w.loss([]stages.Microbatch{plain})
			}
			return sum
		}
		grads := func() map[string][]float64 {
			var saved []stages.Saved
			st := w.stages[0]
			w.run(0, st.ClearGrads)
			for i := range mbs {
				w.run(0, func(l *tensorops.List) { st.Forward(l, 0, &mbs[i], tensorops.Tensor{}) })
				w.run(0, func(l *tensorops.List) { st.Backward(l, 0, mbs[i].Index, tensorops.Tensor{}) })
			}
			w.run(0, func(l *tensorops.List) { saved = st.Grads(l) })
			all := make(map[string][]float64)
			for _, s := range saved {
				for _, v := range s.Data {
					all[s.Name] = append(all[s.Name], float64(v))
				}
			}
			return all
		}()
		const step = 1e-4
		for _, name := range []string{"model.layers.1.mlp.gate.weight", "model.layers.0.self_attn.o_proj.weight"} {
			v := w.weights[name]
			for i := 0; i < len(v); i += 5 {
				was := v[i]
				at := func(x float32) (float64, float64) {
					v[i] = x
					w.load()
					return objective(), float64(x)
				}
				up, high := at(was + step)
				down, low := at(was - step)
				v[i] = was
				slope := (up - down) / (high - low)
				if d := math.Abs(slope - grads[name][i]); d > 2e-5*max(1, math.Abs(slope)) {
					t.Errorf("%s, %s[%d]: the gradient is %g, the slope %g", what, name, i, grads[name][i], slope)
				}
			}
		}
	}
}

// TestGlobalBalance: replicas report the balance loss of a plain computation in float64, over the loads of all of them and of all earlier
// microbatches. The loads begin again with each step, also after one that was abandoned.
func TestGlobalBalance(t *testing.T) {
	const ranks, microbatches, sequences = 3, 3, 2
	for name, c := range map[string]stages.Config{"softmax": balancedGlobally(families[4]), "sigmoids": globalFamily} {
		t.Run(name, func(t *testing.T) {
			dev, m := newDevice(t, 2), newModel(t, c)
			w := &team{t: t, model: m, specs: []stages.ChunkSpec{{Last: len(m.Symbols())}}, group: collective.Local("dp", ranks)}
			for rank := range ranks {
				s := dev.NewStream(fmt.Sprint("rank ", rank))
				t.Cleanup(s.Close)
				st, err := stages.NewStage(m, s, w.specs, stages.Options{Seed: 5, Optimizer: adamw,
					Data: stages.DataParallel{Group: w.group[rank]}})
				if err != nil {
					t.Fatal(err)
				}
				w.ranks = append(w.ranks, &teamRank{team: w, rank: rank, stage: st, stream: s})
			}
			w.each(func(r *teamRank) error { return r.stage.Load(largeWeights, false) })
			for step := range 3 {
				var routes [ranks][microbatches][]stages.Routed
				var got [ranks][]stages.RouterStats
				w.each(func(r *teamRank) error {
					for i := range microbatches {
						mb := stages.Microbatch{Step: int64(step + 1), Index: i, FirstSequence: (r.rank*microbatches + i) * sequences,
							Sequences: sequences, Positions: c.Context - r.rank, Train: true, Of: microbatches} // of different lengths
						for k := range mb.Sequences * mb.Positions {
							mb.Tokens = append(mb.Tokens, int32((3*k+i+5*r.rank+7*step)%c.Vocab))
							mb.Targets = append(mb.Targets, int32((5*k+2*i+r.rank)%c.Vocab))
						}
						if err := r.run(func(l *tensorops.List) { r.stage.Forward(l, 0, &mb, tensorops.Tensor{}) }); err != nil {
							return err
						}
						routes[r.rank][i] = r.stage.Routes(0, i)
						if err := r.run(func(l *tensorops.List) { r.stage.Backward(l, 0, i, tensorops.Tensor{}) }); err != nil {
							return err
						}
						if step == 1 && i == 1 {
							return r.run(r.stage.Reset)
						}
					}
					var read func() []stages.RouterStats
					if err := r.run(func(l *tensorops.List) {
						r.stage.GradNorms(l)
						read = r.stage.RouterStats(l)
					}); err != nil {
						return err
					}
					got[r.rank] = read()
					return r.run(func(l *tensorops.List) {
						r.stage.Apply(l, stages.Update{Count: step + 1, LR: 0.01, GradScale: 0.1})
					})
				})
				if step == 1 {
					continue
				}
				for place := range routes[0][0] {
					loads, want := make([]float64, c.Experts.Count), [ranks]float64{}
					for i := range microbatches {
						for rank := range ranks {
							for _, e := range routes[rank][i][place].Experts {
								loads[e]++
							}
						}
						for rank := range ranks {
							want[rank] += balanceOf(routes[rank][i][place], loads)
						}
					}
					for rank, of := range want {
						if s := got[rank][place]; math.Abs(s.AuxLoss-of) > 1e-6*of || s.Layer != routes[0][0][place].Layer {
							t.Errorf("step %d, rank %d, layer %d: the balance loss is %v, want %v", step+1, rank, s.Layer, s.AuxLoss, of)
						}
					}
				}
			}
		})
	}
}

// balanceOf is the balance loss of a microbatch with given loads, times its rows.
func balanceOf(r stages.Routed, loads []float64) (sum float64) {
	total := 0.0
	for _, n := range loads {
		total += n
	}
	experts := len(loads)
	for n := 0; n < len(r.Scores); n += experts {
		row, all := r.Scores[n:n+experts], 0.0
		for _, s := range row {
			all += float64(s)
		}
		for e, s := range row {
			sum += float64(experts) * float64(r.PerRow) * loads[e] / total * float64(s) / all
		}
	}
	return sum
}

// TestGlobalBalanceTensor: the ranks of a tensor group add the gradient of such a loss once.
func TestGlobalBalanceTensor(t *testing.T) {
	c := globalFamily
	c.Dropout = 0
	dev, m, mbs := newDevice(t, 2), newModel(t, c), microbatches(c, 1, 6, 2)
	grads := func(size int) (all []float32) {
		w := newTeam(t, dev, m, size, nil, stages.Options{Seed: 5, Optimizer: adamw})
		w.each(func(r *teamRank) error {
			if _, err := r.passes(mbs, false); err != nil {
				return err
			}
			var saved []stages.Saved
			err := r.run(func(l *tensorops.List) {
				r.stage.GradNorms(l)
				saved = r.stage.WholeGrads(l)
			})
			for _, s := range saved {
				if r.rank == 0 && s.Name == "model.layers.1.mlp.gate.weight" {
					all = s.Data
				}
			}
			return err
		})
		return all
	}
	want, got := grads(1), grads(2)
	var off, of float64
	for i, x := range want {
		off, of = off+math.Pow(float64(got[i]-x), 2), of+math.Pow(float64(x), 2)
	}
	if !(of > 0 && off < 1e-8*of) {
		t.Errorf("the gradient of a router is off by %g of its norm", math.Sqrt(off/of))
	}
}

// TestGlobalBalanceGroups: a balance loss over the step does not depend on the size of expert groups, and is not that of each microbatch.
func TestGlobalBalanceGroups(t *testing.T) {
	c := stages.Config{Family: stages.Qwen3MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 8, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 12, Renormalize: true}, MTPLayers: 1, MTPWeight: 0.3}
	c = balancedGlobally(c)
	o := stages.Options{Seed: 5, Optimizer: adamw, Pack: true}
	want := trainShared(t, c, o, 4, 1, largeWeights)
	for _, group := range []int{2, 4, -4} {
		own := o
		if group < 0 { // the pair computes one microbatch while the tokens of the other travel
			group, own.Experts.Overlap = -group, true
		}
		trainShared(t, c, own, 4, group, largeWeights).mustBe(t, want, group)
	}
	c.Experts.Balance.Global = false
	local := trainShared(t, c, o, 4, 1, largeWeights)
	for name, v := range local.state {
		if strings.HasSuffix(name, "layers.1.mlp.gate.weight") {
			for i, x := range v {
				if x != want.state[name][i] {
					return
				}
			}
		}
	}
	t.Error("the loads of other microbatches change no weight of a router")
}
