package stages_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// wholeModels are those of splitExperts with as many experts as four ranks can share, and more of what a router's rows count for. One has a
// width that no tensor group divides.
func wholeModels() map[string]stages.Config {
	models := maps.Clone(splitExperts)
	for name, c := range models {
		if c.Experts.Count = 8; c.Experts.Router.Groups > 0 {
			c.Experts.Count = 12
		}
		models[name] = c
	}
	wide := models["mixtral"]
	wide.FFN, wide.Experts.Width, wide.Experts.Balance = 13, 13, stages.BalanceConfig{ZLossWeight: 0.5, Jitter: 0.2}
	models["width 13, z-loss, jitter"] = wide
	models["loads of the step"] = balancedGlobally(models["deepseek_v3"])
	return models
}

// wholeTeam makes a tensor group whose ranks have whole experts, of which so many ranks share them.
func wholeTeam(t *testing.T, dev tensorops.Device, m *stages.Model, size, group int, o stages.Options) *team {
	t.Helper()
	var all []*collective.Group
	of := make([]stages.ExpertParallel, size)
	for first := 0; first < size && group > 1; first += group {
		for i, g := range collective.Local("ep", group) {
			of[first+i].Group, all = g, append(all, g)
		}
	}
	for place := range group {
		for i, g := range collective.Local("edp", size/group) {
			of[i*group+place].Copies, all = g, append(all, g)
		}
	}
	w := newTeamBy(t, dev, m, size, []int{2}, func(rank int) stages.Options {
		own := o
		own.Experts = of[rank]
		own.Experts.Whole, own.Experts.Rows = true, 2*m.Config.Context/size
		return own
	})
	w.leave = func(err error) {
		for _, g := range all {
			g.Leave(err)
		}
	}
	return w
}

// summed are the gradients that the ranks have after the sums of a step, the losses, and the statistics of routers of all ranks.
func (w *team) summed(mbs []stages.Microbatch, separate bool) (grads map[string][]float64, losses []float64, routers []stages.RouterStats) {
	w.t.Helper()
	saved, all, of := make([][]stages.Saved, len(w.ranks)), make([][]float64, len(w.ranks)), make([][]stages.RouterStats, len(w.ranks))
	w.each(func(r *teamRank) (err error) {
		if all[r.rank], err = r.passes(mbs, separate); err != nil {
			return err
		}
		var stats func() []stages.RouterStats
		err = r.run(func(l *tensorops.List) {
			r.stage.GradNorms(l)
			saved[r.rank], stats = r.stage.Grads(l), r.stage.RouterStats(l)
		})
		of[r.rank] = stats()
		return err
	})
	for rank, stats := range of {
		if !slices.Equal(all[rank], all[0]) {
			w.t.Errorf("rank %d has the losses %v, rank 0 %v", rank, all[rank], all[0])
		}
		if rank == 0 {
			routers = stats
			continue
		}
		for i, s := range stats {
			sum := &routers[i]
			sum.Rows, sum.AuxLoss, sum.Entropy, sum.ZLoss = sum.Rows+s.Rows, sum.AuxLoss+s.AuxLoss, sum.Entropy+s.Entropy, sum.ZLoss+s.ZLoss
			for e, n := range s.Counts {
				sum.Counts[e] += n
			}
		}
	}
	return w.join(saved), all[0], routers
}

// TestWholeExpertsAreTheWhole: in float64 the gradients and the statistics of routers of tensor groups with whole experts are those of one
// rank to many digits, whether their ranks share the experts or not, and if the grid adds positions to the microbatches.
func TestWholeExpertsAreTheWhole(t *testing.T) {
	for name, c := range wholeModels() {
		t.Run(name, func(t *testing.T) {
			dev := ref.New()
			t.Cleanup(dev.Close)
			m, o := newModel(t, c), stages.Options{Seed: 5, Optimizer: adamw}
			mbs := microbatches(c, 3, 4, 2)
			mbs[1].Recompute = true
			for _, extra := range []int{0, 3} {
				if extra > 0 && c.MTPLayers > 0 {
					continue
				}
				short, filled := cutShort(mbs, extra)
				o.Tensor.Sequence = false
				want, losses, stats := newTeam(t, dev, m, 1, nil, o).summed(short, false)
				for _, size := range []int{2, 4} {
					for _, group := range []int{1, 2, 4} {
						if group > size || raceDetector && group != 2 {
							continue
						}
						o.Tensor.Sequence = group == 2
						what := fmt.Sprintf("%d ranks, %d share experts, %d positions added", size, group, extra)
						got, gotLosses, gotStats := wholeTeam(t, dev, m, size, group, o).summed(filled, group == 2)
						compare(t, what, got, want, gotLosses, losses, 1e-7)
						sameRouters(t, what, gotStats, stats)
					}
				}
			}
		})
	}
}

// TestWholeExpertGroups: however many of the ranks of all tensor groups share whole experts, they have the same losses, norms, weights and
// optimizer state, to the bit, with each level of ZeRO and with pairs of passes; and the losses of one rank for each replica within
// rounding.
func TestWholeExpertGroups(t *testing.T) {
	models := wholeModels()
	narrow := adamw
	narrow.State = tensorops.BFloat16
	sequence := stages.TensorParallel{Sequence: true}
	for name, c := range map[string]struct {
		cfg      stages.Config
		o        stages.Options
		replicas int
	}{
		"adamw": {models["qwen3_moe, mtp"], stages.Options{Optimizer: adamw, Pack: true}, 2},
		"sequence, bfloat16": {models["qwen2_moe"], stages.Options{Optimizer: stages.Optimizer{Name: stages.SGD, Momentum: 0.9}, BF16: true,
			Tensor: sequence}, 2},
		"muon":               {models["width 13, z-loss, jitter"], stages.Options{Optimizer: byMuon}, 2},
		"narrow state":       {models["mixtral"], stages.Options{Optimizer: narrow, Tensor: sequence}, 2},
		"biases":             {models["gpt_oss"], stages.Options{Optimizer: adamw, Tensor: sequence}, 2},
		"adapters, bfloat16": {models["gpt_oss, adapter"], stages.Options{Optimizer: adamw, BF16: true, Residual: tensorops.BFloat16}, 2},
		"loads of the step":  {models["loads of the step"], stages.Options{Optimizer: adamw}, 2},
		"large":              {zeroExperts, stages.Options{Optimizer: adamw, Tensor: sequence}, 2},
		"large, muon":        {zeroExperts, stages.Options{Optimizer: byMuon}, 3},
		"small":              {smallExperts, stages.Options{Optimizer: adamw}, 3},
		"one replica":        {models["mixtral"], stages.Options{Optimizer: adamw}, 1},
		"one replica, muon":  {models["qwen2_moe"], stages.Options{Optimizer: byMuon, Tensor: sequence}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			const tensor = 2
			c.o.Seed, c.o.Experts.Whole = 5, true
			m := newModel(t, c.cfg)
			want := crew(t, m, c.o, c.replicas, tensor, 1).trainCrew(tensor, false)
			plain := c.o
			plain.Tensor.Sequence, plain.Experts.Whole = false, false
			one := crew(t, m, plain, c.replicas, 1, 1).trainCrew(1, false)
			tolerance := 2e-6
			if c.o.BF16 {
				tolerance = 0.01
			}
			for i, loss := range one.losses[:len(one.losses)/2] { // of the first step
				if !(math.Abs(want.losses[i]-loss) <= tolerance*loss) {
					t.Errorf("loss %d is %v, of one rank for each replica %v", i, want.losses[i], loss)
				}
			}
			for _, group := range []int{1, 2, 4, 6} {
				if c.replicas*tensor%group > 0 || c.cfg.Experts.Count%group > 0 {
					continue
				}
				for zero := range 4 {
					if c.replicas == 1 && zero > 0 || raceDetector && (group != 2 || zero == 1) ||
						c.o.Optimizer.State != tensorops.Float32 && zero > 1 {
						continue
					}
					own := c.o
					own.Data.Zero = zero
					crew(t, m, own, c.replicas, tensor, group).trainCrew(tensor, false).mustBe(t, want, group)
				}
				if group > 1 {
					own := c.o
					own.Experts.Overlap = true
					crew(t, m, own, c.replicas, tensor, group).trainCrew(tensor, true).mustBe(t, want, group)
				}
			}
		})
	}
}

// TestWholeExpertsRefused: groups that do not fit are refused with the numbers, and widths that no group divides are not.
func TestWholeExpertsRefused(t *testing.T) {
	c := splitExperts["mixtral"]
	c.FFN, c.Experts.Width = 13, 13
	m := newModel(t, c)
	if err := m.CheckWholeExperts(2); err != nil {
		t.Error(err)
	}
	if err := m.CheckTensor(2); !errors.Is(err, stages.ErrModel) {
		t.Errorf("a width of 13 divided by 2: %v", err)
	}
	two := tensorops.DryGroup{Members: 2}
	o := stages.Options{Optimizer: adamw, Tensor: stages.TensorParallel{Group: two}, Experts: stages.ExpertParallel{Whole: true}}
	_, err := stages.NewStage(m, tensorops.NewDryStream(), []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
	const want = "1 expert groups of 1 ranks are not the 2 ranks of the tensor groups"
	if !errors.Is(err, stages.ErrModel) || !strings.Contains(err.Error(), want) {
		t.Errorf("without the ranks with the same experts: %v", err)
	}
	o.Experts.Copies = two
	dry := tensorops.NewDryStream()
	s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
	if err != nil {
		t.Fatal(err)
	}
	l := dry.NewList()
	s.Forward(l, 0, &stages.Microbatch{Step: 1, Sequences: 1, Positions: 7, Tokens: make([]int32, 7), Targets: make([]int32, 7),
		Train: true})
	if err := l.Err(); !errors.Is(err, stages.ErrInput) || !strings.Contains(err.Error(), "7 positions, which a tensor group of 2 ranks") {
		t.Errorf("7 positions on 2 ranks: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
