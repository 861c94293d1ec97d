package stages_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Gradients that are added over the replicas while others are computed have the bits of those that are added
// at the step's end, step after step, with B and with I and W, for every kind of layers.
func TestEarlySumsChangeNoBit(t *testing.T) {
	for name, cfg := range splitModels {
		dev := newDevice(t, 2)
		m := newModel(t, cfg)
		for _, cuts := range [][]int{nil, {2}} {
			grads := func(separate bool, of int) (all [][]stages.Saved) {
				const size = 2
				w := &team{t: t, model: m, group: collective.Local("data", size)}
				from := 0
				for i, to := range append(slices.Clone(cuts), len(m.Symbols())) {
					w.specs = append(w.specs, stages.ChunkSpec{Chunk: i, First: from, Last: to})
					from = to
				}
				for rank := range size {
					s := dev.NewStream(fmt.Sprintf("replica %d", rank))
					t.Cleanup(s.Close)
					st, err := stages.NewStage(m, s, w.specs, stages.Options{Seed: 5, Optimizer: adamw, StepTokens: 8 * cfg.Context,
						Data: stages.DataParallel{Group: w.group[rank]}})
					if err != nil {
						t.Fatal(err)
					}
					w.ranks = append(w.ranks, &teamRank{team: w, rank: rank, stage: st, stream: s})
				}
				w.each(func(r *teamRank) error { return r.stage.Load(largeWeights, false) })
				for step := int64(1); step <= 2; step++ {
					saved := make([][]stages.Saved, size)
					w.each(func(r *teamRank) error {
						mbs := microbatches(cfg, step, 8, 2)[2*r.rank : 2*r.rank+2]
						for i := range mbs {
							mbs[i].Of = of
						}
						if _, err := r.passes(mbs, separate); err != nil {
							return err
						}
						if err := r.run(r.stage.GradNorms); err != nil {
							return err
						}
						if err := r.run(func(l *tensorops.List) { saved[r.rank] = r.stage.WholeGrads(l) }); err != nil {
							return err
						}
						return r.run(func(l *tensorops.List) { r.stage.Apply(l, stages.Update{Count: int(step), LR: 0.01, GradScale: 0.1}) })
					})
					all = append(all, saved...)
				}
				return all
			}
			want := grads(false, 0)
			for _, separate := range []bool{false, true} {
				for rank, got := range grads(separate, 2) {
					for i, v := range got {
						if !slices.Equal(v.Data, want[rank][i].Data) || !slices.Equal(v.Data, want[rank&^1][i].Data) {
							t.Errorf("%s, cuts %v, I and W apart: %v, %d: the gradient of %s differs", name, cuts, separate, rank, v.Name)
						}
					}
				}
			}
		}
	}
}

// A layer's gradients are added while those of the layers before it are computed, in the backward of the
// last microbatch alone; what other ranks or rows add to comes at the end.
func TestEarlySumsBegin(t *testing.T) {
	for _, tied := range []bool{false, true} {
		cfg := stages.Config{Family: stages.Llama, Layers: 3, Hidden: 128, Heads: 4, KVHeads: 4, FFN: 256, Context: 8, Vocab: 600,
			RopeTheta: 1000, Tie: tied}
		m := newModel(t, cfg)
		dry := tensorops.NewDryStream()
		o := stages.Options{Optimizer: adamw, Data: stages.DataParallel{Group: tensorops.DryGroup{Members: 2}}}
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}}, o)
		if err != nil {
			t.Fatal(err)
		}
		var sent []int64 // elements
		for i, mb := range microbatches(cfg, 1, 4, 2) {
			mb.Of = 2
			l := dry.NewList()
			s.Forward(l, 0, &mb)
			s.Backward(l, 0, i)
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			begun, beside := 0, 0
			for _, op := range l.Ops() {
				switch {
				case op.Kind == tensorops.KindCollective && op.Has(tensorops.FlagLater):
					begun++
					sent = append(sent, int64(op.Collective().Dst.Len()))
				case op.Kind == tensorops.KindCollective:
					t.Errorf("tied %v: microbatch %d waits for %v", tied, i, &op)
				case op.Kind == tensorops.KindMatMul && begun > 0:
					beside++
				}
			}
			switch {
			case i == 0 && begun > 0:
				t.Errorf("tied %v: %d sums began before the last microbatch", tied, begun)
			case i == 1 && (begun < 3 || beside < 14):
				t.Errorf("tied %v: %d sums began, beside %d products", tied, begun, beside)
			}
		}
		l, early, all := dry.NewList(), int64(0), int64(0)
		s.GradNorms(l)
		for _, n := range sent {
			early += n
		}
		for _, op := range l.Ops() {
			if op.Kind == tensorops.KindCollective {
				all += int64(op.Collective().Dst.Len())
			}
		}
		all += early
		late := int64(0)
		if tied {
			late = int64(cfg.Vocab * cfg.Hidden)
		}
		if all != m.Parameters() || all-early != late {
			t.Errorf("tied %v: %d elements are added early and %d at the end, of %d", tied, early, all-early, m.Parameters())
		}
	}
}
