package stages_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// contextExperts are models with experts of which ranks can share the positions.
var contextExperts = map[string]stages.Config{
	"microbatches, z and jitter": {Family: stages.Qwen3MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 10, FFN: 40, Context: 24,
		Vocab: 19, Dropout: 0.1, RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 8, PerToken: 2, Width: 12, Renormalize: true,
			AuxLossWeight: 3, Dense: []int{0}, Balance: stages.BalanceConfig{ZLossWeight: 0.5, Jitter: 0.2}}},
	"sequences, a shared expert": {Family: stages.Qwen2MoE, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 24, Vocab: 19,
		RopeTheta: 1000, Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 12, SharedWidth: 20, SharedGate: true, AuxLossWeight: 3,
			Balance: stages.BalanceConfig{BySequence: true}}},
}

// withBiases is one whose experts have biases, and its attention sinks and windows.
var withBiases = stages.Config{Family: stages.GPTOSS, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 12, Context: 24,
	Vocab: 19, RopeTheta: 1000, AttentionBias: true, Window: 7, Full: []int{1},
	Experts: stages.ExpertConfig{Count: 4, PerToken: 2, Width: 12, Renormalize: true, AuxLossWeight: 1}}

func withBiasesToo() map[string]stages.Config {
	models := maps.Clone(contextExperts)
	models["sinks and biases"] = withBiases
	return models
}

// contextRouters are the gradients of the ranks of a context group, their losses, and the statistics of their routers.
func contextRouters(t *testing.T, dev tensorops.Device, m *stages.Model, size int, o stages.Options, mbs []stages.Microbatch) (
	grads map[string][]float64, losses []float64, routers []stages.RouterStats) {
	t.Helper()
	groups := collective.Local("context", size)
	all, of, each := make([]map[string][]float64, size), make([][]stages.RouterStats, size), make([][]float64, size)
	var wait sync.WaitGroup
	for rank := range size {
		w := newTeamBy(t, dev, m, 1, nil, func(int) stages.Options {
			own := o
			if size > 1 {
				own.Context.Group = groups[rank]
			}
			return own
		})
		w.leave = groups[rank].Leave
		wait.Go(func() {
			var saved []stages.Saved
			var read func() []stages.RouterStats
			w.each(func(r *teamRank) error {
				for i := range mbs {
					if err := r.run(func(l *tensorops.List) { r.stage.Forward(l, 0, &mbs[i]) }); err != nil {
						return err
					}
					loss, _ := r.stage.Loss(0, mbs[i].Index)
					each[rank] = append(each[rank], loss)
					err := r.run(func(l *tensorops.List) {
						if size%2 == 0 {
							r.stage.Backward(l, 0, mbs[i].Index)
							return
						}
						r.stage.InputGrad(l, 0, mbs[i].Index)
						r.stage.WeightGrad(l, 0, mbs[i].Index)
					})
					if err != nil {
						return err
					}
				}
				return r.run(func(l *tensorops.List) {
					r.stage.SumGrads(l)
					saved, read = r.stage.Grads(l), r.stage.RouterStats(l)
				})
			})
			all[rank], of[rank] = w.join([][]stages.Saved{saved}), read()
		})
	}
	wait.Wait()
	if t.Failed() {
		t.FailNow()
	}
	grads, losses, routers = all[0], each[0], of[0]
	for rank := 1; rank < size; rank++ {
		if !slices.Equal(each[rank], losses) || len(of[rank]) != len(routers) {
			t.Fatalf("rank %d has the losses %v and %d routers, rank 0 %v and %d", rank, each[rank], len(of[rank]), losses, len(routers))
		}
		for name, g := range all[rank] {
			for i, v := range g {
				grads[name][i] += v
			}
		}
		for i, r := range of[rank] {
			sum := &routers[i]
			sum.Rows, sum.AuxLoss, sum.Entropy, sum.ZLoss = sum.Rows+r.Rows, sum.AuxLoss+r.AuxLoss, sum.Entropy+r.Entropy, sum.ZLoss+r.ZLoss
			for e, n := range r.Counts {
				sum.Counts[e] += n
			}
		}
	}
	return grads, losses, routers
}

// sameRouters compares statistics.
func sameRouters(t *testing.T, what string, got, want []stages.RouterStats) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: %d routers, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }
		if g.Layer != w.Layer || g.Rows != w.Rows || !slices.Equal(g.Counts, w.Counts) || !near(g.AuxLoss, w.AuxLoss) ||
			!near(g.Entropy, w.Entropy) || !near(g.ZLoss, w.ZLoss) {
			t.Errorf("%s: %+v, want %+v", what, g, w)
		}
	}
}

// cutShort returns microbatches without the last n positions, and with these filled up: a model must learn the same from both.
func cutShort(mbs []stages.Microbatch, n int) (short, filled []stages.Microbatch) {
	for _, mb := range mbs {
		s, f := mb, mb
		s.Positions -= n
		s.Tokens, s.Targets, f.Tokens, f.Targets, f.Extra = nil, nil, nil, nil, n
		for at := 0; at < len(mb.Tokens); at += mb.Positions {
			end := at + s.Positions
			s.Tokens, s.Targets = append(s.Tokens, mb.Tokens[at:end]...), append(s.Targets, mb.Targets[at:end]...)
			f.Tokens = append(append(f.Tokens, mb.Tokens[at:end]...), make([]int32, n)...)
			f.Targets = append(append(f.Targets, mb.Targets[at:end]...), slices.Repeat([]int32{tensorops.IgnoreTarget}, n)...)
		}
		short, filled = append(short, s), append(filled, f)
	}
	return short, filled
}

// TestExpertsInContextGroups: in float64 ranks that share positions have the gradients of a model with experts, and the statistics of its
// routers, to many digits: also of the balance loss, the z-loss and jitter, and if the grid adds positions to the microbatches.
func TestExpertsInContextGroups(t *testing.T) {
	for name, c := range withBiasesToo() {
		t.Run(name, func(t *testing.T) {
			dev := ref.New()
			t.Cleanup(dev.Close)
			m, o := newModel(t, c), stages.Options{Seed: 5, Optimizer: adamw}
			mbs := microbatches(c, 3, 4, 2)
			mbs[1].Recompute = true
			for _, extra := range []int{0, 3} {
				short, filled := cutShort(mbs, extra)
				want, losses, stats := contextRouters(t, dev, m, 1, o, short)
				for _, size := range []int{1, 2, 3, 4, 12} {
					what := fmt.Sprintf("%d ranks, %d positions added", size, extra)
					got, gotLosses, gotStats := contextRouters(t, dev, m, size, o, filled)
					compare(t, what, got, want, gotLosses, losses, 1e-7)
					sameRouters(t, what, gotStats, stats)
				}
			}
		})
	}
}

// TestLoadsThatNothingNeeds: ranks that share positions add the loads of a router for the gradient of its balance loss and for the figure
// of that loss, which a step also has if the loss has no weight. A frozen layer has no figure.
func TestLoadsThatNothingNeeds(t *testing.T) {
	for _, c := range []struct {
		weight float64
		frozen bool
		sums   int // of loads, in a backward
	}{{3, false, 2}, {0, false, 2}, {3, true, 2}, {0, true, 1}} {
		cfg := contextExperts["sequences, a shared expert"]
		cfg.Experts.AuxLossWeight = c.weight
		m, dry := newModel(t, cfg), tensorops.NewDryStream()
		if c.frozen {
			if err := m.Freeze([]string{"1"}); err != nil {
				t.Fatal(err)
			}
		}
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, stages.Options{Optimizer: adamw,
			Context: stages.ContextParallel{Group: tensorops.DryGroup{Members: 2}}})
		if err != nil {
			t.Fatal(err)
		}
		mb, sums, l := microbatches(cfg, 1, 2, 2)[0], 0, dry.NewList()
		s.Forward(l, 0, &mb)
		s.Backward(l, 0, 0)
		for _, op := range l.Ops() {
			if op.Kind == tensorops.KindCollective && op.Collective().What == tensorops.AllReduce &&
				op.Collective().Src.Cols() == cfg.Experts.Count {
				sums++
			}
		}
		if err := tensorops.Run(dry, l); err != nil {
			t.Fatal(err)
		}
		if sums != c.sums {
			t.Errorf("%+v: the loads of %d routers are added", c, sums)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExpertsInContextGroupsAgain: in float32 they are off by rounding, and have the same bits when computed again, whether the loads
// travel beside computing or not.
func TestExpertsInContextGroupsAgain(t *testing.T) {
	for name, c := range contextExperts {
		t.Run(name, func(t *testing.T) {
			dev, m, o := newDevice(t, 2), newModel(t, c), stages.Options{Seed: 5, Optimizer: adamw, Pack: true}
			mbs := microbatches(c, 3, 4, 2)
			want, losses, stats := contextRouters(t, dev, m, 1, o, mbs)
			got, gotLosses, gotStats := contextRouters(t, dev, m, 4, o, mbs)
			compare(t, "4 ranks", got, want, gotLosses, losses, 5e-6)
			sameRouters(t, "4 ranks", gotStats, stats)
			o.NoOverlap = true
			again, againLosses, _ := contextRouters(t, dev, m, 4, o, mbs)
			if !slices.Equal(gotLosses, againLosses) || apart(together(again), together(got)) != 0 {
				t.Error("other bits when computed again, without overlap")
			}
		})
	}
}

// TestExpertGroupsInContextGroups: expert groups that are cut from context groups and replicas have the bits of ranks with all experts,
// whatever their size.
func TestExpertGroupsInContextGroups(t *testing.T) {
	for name, c := range withBiasesToo() {
		for kind, o := range map[string]stages.Options{"float32": {Seed: 5, Optimizer: adamw, Pack: true},
			"bfloat16": {Seed: 5, Optimizer: stages.Optimizer{Name: stages.SGD, Momentum: 0.9}, BF16: true}} {
			if raceDetector && kind == "bfloat16" {
				continue
			}
			t.Run(name+", "+kind, func(t *testing.T) {
				o.Context.Group = tensorops.DryGroup{Members: 2}
				want := trainShared(t, c, o, 4, 1, largeWeights)
				for _, group := range []int{2, 4, -4} {
					own := o
					if group < 0 { // the pair computes one microbatch while the tokens of the other travel
						group, own.Experts.Overlap = -group, true
					}
					trainShared(t, c, own, 4, group, largeWeights).mustBe(t, want, group)
				}
			})
		}
	}
}
