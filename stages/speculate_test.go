package stages_test

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// What becomes of a step's update.
const (
	applied = iota
	skipped
)

// TestSpeculativeUpdates: a step whose update is applied speculatively, rightly or wrongly,
// and beside which forwards of the next step run that are aborted, leaves the bits of one
// whose update is known; and no memory but the copies.
func TestSpeculativeUpdates(t *testing.T) {
	ends := []int{applied, applied, skipped, applied, skipped, applied, applied}
	for _, c := range []struct {
		name      string
		optimizer stages.Optimizer
		cuts      []int
		ranks     []int
		pack      bool
		recompute bool
		half      bool // in bfloat16, the speculating one from copies of its weights
	}{
		{"adamw, tied rows on one rank, packed", adamw, []int{1, 3}, []int{0, 1, 0}, true, false, false},
		{"adamw, tied over two ranks", adamw, []int{2}, []int{0, 1}, false, false, false},
		{"adamw, bfloat16, copies", adamw, []int{1, 3}, []int{0, 1, 0}, false, true, true},
		{"momentum, bfloat16, copies, packed", stages.Optimizer{Name: stages.SGD, Momentum: 0.9}, []int{2}, []int{0, 1}, true, false, true},
		{"momentum, recomputed", stages.Optimizer{Name: stages.SGD, Momentum: 0.9, WeightDecay: 0.1}, []int{2}, []int{0, 1}, false, true, false},
		{"no state", stages.Optimizer{Name: stages.SGD}, []int{1, 4}, []int{0, 1, 0}, true, false, false},
	} {
		for _, cfg := range append(slices.Clone(families), mtpFamily) {
			t.Run(cfg.Family+", "+c.name, func(t *testing.T) {
				m := newModel(t, cfg)
				cuts := slices.Clone(c.cuts)
				o := stages.Options{Seed: 5, Optimizer: c.optimizer, Pack: c.pack, StepTokens: 4 * cfg.Context}
				if c.half {
					o.BF16, o.Residual = true, tensorops.BFloat16
				}
				known := newPipeOn(t, newDevice(t, 1), m, cuts, c.ranks, o)
				o.Copies = c.half
				speculating := newPipeOn(t, newDevice(t, 1), m, cuts, c.ranks, o)
				in := int64(0)
				for i, end := range ends {
					batch := func(step int) []stages.Microbatch {
						mbs := microbatches(cfg, int64(step), 4, 2)
						for j := range mbs {
							mbs[j].Recompute = c.recompute && j == 0
						}
						return mbs
					}
					loss, norm, u := known.passes(i+1, batch(i+1), i%2 == 0)
					loss2, norm2, _ := speculating.passes(i+1, batch(i+1), i%2 == 0)
					if math.Float64bits(loss) != math.Float64bits(loss2) || math.Float64bits(norm) != math.Float64bits(norm2) {
						t.Fatalf("step %d has loss %g and norm %g, want %g and %g", i+1, loss2, norm2, loss, norm)
					}
					known.end(end, u)
					speculating.speculate(i, end, u, batch(i+2))
					if got := speculating.inUse(); i > 0 && got != in {
						t.Errorf("step %d: %d bytes are in use, %d after the first", i+1, got, in)
					}
					in = speculating.inUse()
					if want, got := known.saved(), speculating.saved(); !slices.EqualFunc(want, got, sameSaved) {
						t.Fatalf("step %d: weights or state differ", i+1)
					}
				}
			})
		}
	}
}

// mtpFamily has multi-token prediction, which embeds a second time.
var mtpFamily = func() stages.Config {
	c := families[1]
	c.MTPLayers, c.MTPWeight = 1, 0.3
	return c
}()

// end ends a step whose update is known.
func (p *pipe) end(how int, u stages.Update) {
	p.eachStage(func(v int, s *stages.Stage) {
		p.run(v, func(l *tensorops.List) {
			if how == skipped {
				s.ClearGrads(l)
			} else {
				s.Apply(l, u)
			}
		})
	})
}

// speculate ends the i-th step in the other way: the update is applied speculatively, wrongly in every
// second step; chunks before the loss run forwards of the next step, which are then
// aborted; and the real end is told.
func (p *pipe) speculate(i, how int, u stages.Update, next []stages.Microbatch) {
	guess := u
	if i%2 == 1 {
		guess.GradScale *= 2
	}
	p.eachStage(func(v int, s *stages.Stage) {
		p.run(v, func(l *tensorops.List) { s.SpeculativeApply(l, guess) })
	})
	for j := range next {
		var x tensorops.Tensor
		for v := range p.stages[:len(p.stages)-1] {
			p.run(v, func(l *tensorops.List) { x = stages.Only(p.stages[v].Forward(l, v, &next[j], x)) })
		}
		x.Release()
	}
	p.eachStage(func(v int, s *stages.Stage) {
		p.run(v, func(l *tensorops.List) {
			s.AbortMicrobatches(l)
			switch {
			case how == skipped:
				s.Rollback(l, nil)
			case guess != u:
				s.Rollback(l, &u)
			default:
				s.Commit(l)
			}
		})
		if n := s.InFlight(); n != 0 {
			p.t.Errorf("%d microbatches are in flight after all were aborted", n)
		}
	})
}

// inUse is what the pipe's device holds.
func (p *pipe) inUse() int64 { return p.dev.Memory().InUse }

// saved is every weight and all state, in host memory.
func (p *pipe) saved() (all []stages.Saved) {
	copies := tensorops.NewHostMemory(0).NewArena("saved")
	defer copies.Close()
	p.eachStage(func(v int, s *stages.Stage) {
		p.run(v, func(l *tensorops.List) { all = append(all, s.Save(l, copies)...) })
	})
	for i := range all {
		all[i].Data = slices.Clone(all[i].Data)
	}
	return all
}

func sameSaved(a, b stages.Saved) bool {
	return a.Name == b.Name && slices.EqualFunc(a.Data, b.Data, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}
