package stages_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// muonGrid is a grid's size, and what its replicas share.
type muonGrid struct{ tensor, data, zero int }

func (g muonGrid) String() string { return fmt.Sprintf("tp%d dp%d zero-%d", g.tensor, g.data, g.zero) }

// muonSteps trains a model for three steps by Muon, on a rank for each place in a grid. It returns the weights and the optimizer state,
// and the norms that each rank reports in each step.
func muonSteps(t *testing.T, dev tensorops.Device, cfg stages.Config, g muonGrid, o stages.Options) (state map[string][]float64,
	norms [][]stages.Norm) {
	t.Helper()
	w := &team{t: t, model: newModel(t, cfg)}
	w.specs = []stages.ChunkSpec{{Last: len(w.model.Symbols())}}
	var groups [][]*collective.Group // of tensor ranks, by replica
	var copies [][]*collective.Group // of replicas, by place in the tensor group
	for i := range g.data {
		groups = append(groups, collective.Local(fmt.Sprint("tensor group ", i), g.tensor))
	}
	for i := range g.tensor {
		copies = append(copies, collective.Local(fmt.Sprint("replicas ", i), g.data))
	}
	w.leave = func(err error) {
		for _, members := range slices.Concat(groups, copies) {
			for _, m := range members {
				m.Leave(err)
			}
		}
	}
	for replica := range g.data {
		for place := range g.tensor {
			own := o
			if g.tensor > 1 {
				own.Tensor.Group = groups[replica][place]
			}
			if g.data > 1 {
				own.Data = stages.DataParallel{Group: copies[place][replica], Zero: g.zero}
			}
			w.group = append(w.group, groups[replica][place])
			s := dev.NewStream(fmt.Sprintf("replica %d, tensor rank %d", replica, place))
			t.Cleanup(s.Close)
			st, err := stages.NewStage(w.model, s, w.specs, own)
			if err != nil {
				t.Fatal(err)
			}
			w.ranks = append(w.ranks, &teamRank{team: w, rank: len(w.ranks), stage: st, stream: s})
		}
	}
	w.each(func(r *teamRank) error { return r.stage.Load(largeWeights, false) })
	arena := tensorops.NewHostMemory(0).NewArena("saved")
	defer arena.Close()
	saved := make([][]stages.Saved, len(w.ranks))
	norms = make([][]stages.Norm, len(w.ranks))
	for step := 1; step <= 3; step++ {
		w.each(func(r *teamRank) error {
			mbs := microbatches(cfg, int64(step), 12, 2)
			n, replica := len(mbs)/g.data, r.rank/g.tensor
			mbs = mbs[replica*n : (replica+1)*n]
			for i := range mbs {
				mbs[i].Of = n
			}
			if _, err := r.passes(mbs, step == 2); err != nil {
				return err
			}
			if err := r.run(r.stage.GradNorms); err != nil {
				return err
			}
			norms[r.rank] = r.stage.Norms(norms[r.rank])
			u := stages.Update{Count: step, LR: 0.02, GradScale: 0.1}
			if step == 2 && g.zero < 3 { // a prediction that was wrong
				wrong := stages.Update{Count: 2, LR: 1, GradScale: 1}
				if err := r.run(func(l *tensorops.List) { r.stage.SpeculativeApply(l, wrong) }); err != nil {
					return err
				}
				return r.run(func(l *tensorops.List) { r.stage.Rollback(l, &u) })
			}
			return r.run(func(l *tensorops.List) { r.stage.Apply(l, u) })
		})
	}
	w.each(func(r *teamRank) error {
		return r.run(func(l *tensorops.List) { saved[r.rank] = r.stage.Save(l, arena) })
	})
	for _, all := range saved {
		for i, v := range all {
			if v.DType == tensorops.BFloat16 {
				for _, half := range tensorops.HostNumbers[uint16](v.Narrow) {
					all[i].Data = append(all[i].Data, math.Float32frombits(uint32(half)<<16))
				}
			}
		}
	}
	return w.join(saved), norms
}

var byMuon = stages.Optimizer{Name: stages.Muon, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, Momentum: 0.95, EMA: 0.9}

// TestMuonHomes: in float64 the weights and the momentum of ranks that have parts of matrices are those of one rank, whose matrices are
// whole: with one matrix in a parameter and with several, and with slices that several ranks have.
func TestMuonHomes(t *testing.T) {
	dev := ref.New()
	t.Cleanup(dev.Close)
	for _, name := range []string{"gpt2", "llama", "one kv head", "phi3", "qwen3_5_text", "gpt2, mtp", "mixtral"} {
		cfg := splitModels[name]
		o := stages.Options{Seed: 5, Optimizer: byMuon}
		want, _ := muonSteps(t, dev, cfg, muonGrid{1, 1, 0}, o)
		for _, g := range []muonGrid{{2, 1, 0}, {4, 1, 0}, {1, 3, 1}, {2, 2, 0}, {2, 3, 1}} {
			o.Tensor.Sequence = g.tensor == 2
			got, _ := muonSteps(t, dev, cfg, g, o)
			if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
				t.Errorf("%s, %v: the ranks have other tensors than one rank", name, g)
			}
			for tensor, v := range want {
				if d := apart(got[tensor], v); !(d <= 1e-5) {
					t.Errorf("%s, %v: %s is off by %.3g of its norm", name, g, tensor, d)
				}
			}
		}
	}
}

// TestMuonHomesChangeNoBit: whatever replicas share, the weights, the optimizer state and the norms are those of replicas that share
// nothing: with parts that are even and uneven, gathered one by one and in buckets, and with an optimizer state in bfloat16.
func TestMuonHomesChangeNoBit(t *testing.T) {
	dev := newDevice(t, 2)
	wide := stages.Config{Family: stages.Llama, Layers: 2, Hidden: 144, Heads: 4, KVHeads: 2, FFN: 200, Context: 8, Vocab: 19,
		RopeTheta: 1000, Tie: true}
	for _, c := range []struct {
		name  string
		cfg   stages.Config
		grids []muonGrid
		o     stages.Options
	}{
		{"small", splitModels["gpt2"], []muonGrid{{1, 2, 1}, {1, 3, 1}, {2, 2, 1}}, stages.Options{}},
		{"experts", families[4], []muonGrid{{1, 2, 1}, {2, 2, 1}}, stages.Options{}},
		{"wide", wide, []muonGrid{{1, 2, 1}, {1, 2, 2}, {1, 3, 2}, {1, 3, 3}, {2, 2, 3}}, stages.Options{}},
		{"wide, state in bfloat16", wide, []muonGrid{{1, 3, 1}, {2, 2, 3}}, stages.Options{}},
		{"wide, products in bfloat16", wide, []muonGrid{{1, 2, 3}, {2, 2, 1}}, stages.Options{BF16: true, Copies: true,
			Residual: tensorops.BFloat16}},
	} {
		c.o.Seed, c.o.StepTokens, c.o.Optimizer = 5, 12*c.cfg.Context, byMuon
		if c.name == "wide, state in bfloat16" {
			c.o.Optimizer.State = tensorops.BFloat16
		}
		for _, g := range c.grids {
			plain := g
			plain.zero = 0
			want, wantNorms := muonSteps(t, dev, c.cfg, plain, c.o)
			got, norms := muonSteps(t, dev, c.cfg, g, c.o)
			for name, v := range want {
				if !slices.Equal(got[name], v) {
					t.Errorf("%s, %v: %s differs", c.name, g, name)
				}
			}
			for rank := range norms {
				if len(got) != len(want) || !slices.Equal(norms[rank], wantNorms[rank]) {
					t.Errorf("%s, %v: %d tensors of %d, or other norms on rank %d", c.name, g, len(got), len(want), rank)
				}
			}
		}
	}
}

// TestMuonHomesShare: the ranks of a grid make each matrix orthogonal once, share the operations as evenly as matrices can be dealt,
// and of replicas none needs more memory than the first: their matrices have similar shapes here.
func TestMuonHomesShare(t *testing.T) {
	m := newModel(t, stages.Config{Family: stages.Llama, Layers: 5, Hidden: 64, Heads: 8, KVHeads: 8, FFN: 160, Context: 8, Vocab: 19,
		RopeTheta: 1000})
	update := func(tensor, data tensorops.DryGroup, zero int) (flops, bytes int64) {
		o := stages.Options{Optimizer: byMuon, Tensor: stages.TensorParallel{Group: tensor}}
		if data.Members > 1 {
			o.Data = stages.DataParallel{Group: data, Zero: zero}
		}
		dry := tensorops.NewDryStream()
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
		if err != nil {
			t.Fatal(err)
		}
		l := dry.NewList()
		s.Apply(l, stages.Update{Count: 1})
		for _, op := range l.Ops() {
			if op.Kind == tensorops.KindMatMul {
				a := op.MatMul()
				flops += int64(a.C.Len()) * int64(a.A.Len()) / int64(a.C.Rows())
			}
		}
		if err := tensorops.Run(dry, l); err != nil {
			t.Fatal(err)
		}
		bytes = dry.Memory().Taken
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return flops, bytes
	}
	one := tensorops.DryGroup{Members: 1}
	whole, _ := update(one, one, 0)
	const largest = 5 * (2*64*64*160 + 64*64*64)
	if want := int64(5 * (4*5*3*64*64*64 + 3*largest)); whole != want {
		t.Errorf("one rank has %d multiplications, want %d", whole, want)
	}
	for _, g := range []muonGrid{{1, 2, 1}, {1, 3, 2}, {2, 1, 0}, {4, 1, 0}, {2, 3, 3}, {2, 2, 0}} {
		var sum, least, most, first int64
		for replica := range g.data {
			for place := range g.tensor {
				flops, bytes := update(tensorops.DryGroup{Place: place, Members: g.tensor},
					tensorops.DryGroup{Place: replica, Members: g.data}, g.zero)
				if sum += flops; sum == flops {
					least, most, first = flops, flops, bytes
				}
				if least, most = min(least, flops), max(most, flops); g.tensor == 1 && bytes > first {
					t.Errorf("%v: replica %d, tensor rank %d takes %d bytes, the first rank %d", g, replica, place, bytes, first)
				}
			}
		}
		want := whole
		if g.zero == 0 {
			want *= int64(g.data) // each replica for itself
		}
		if sum != want || most-least > largest {
			t.Errorf("%v: the ranks have %d multiplications, want %d: from %d to %d, where the largest matrix has %d", g, sum, want, least,
				most, largest)
		}
	}
}

// TestMuonShadow: a rank that needs others for its update has no shadow, which would be alone.
func TestMuonShadow(t *testing.T) {
	m := newModel(t, splitModels["llama"])
	o := stages.Options{Optimizer: byMuon, Tensor: stages.TensorParallel{Group: tensorops.DryGroup{Members: 2}}}
	if _, err := stages.NewShadow(m, tensorops.NewDryStream(), []stages.ChunkSpec{{Last: len(m.Symbols())}}, o); err == nil {
		t.Error("there is a shadow")
	}
}
