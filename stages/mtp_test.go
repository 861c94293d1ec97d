package stages_test

import (
	"errors"
	"math"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// mtpModels predict further tokens, with the embedding used in every combination.
var mtpModels = []stages.Config{
	{Family: stages.GPT2, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 4, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, Tie: true, MTPLayers: 2,
		MTPWeight: 0.3},
	{Family: stages.Llama, Layers: 2, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 10, Vocab: 19, Dropout: 0.1, Tie: true,
		RopeTheta: 1000, MTPLayers: 1, MTPWeight: 0.3},
	{Family: stages.Llama, Layers: 3, Hidden: 24, Heads: 4, KVHeads: 2, FFN: 40, Context: 10, Vocab: 19, RopeTheta: 1000, MTPLayers: 3,
		MTPWeight: 1},
}

// The same bits wherever embedding, multi-token prediction and head stand.
func TestMTPLayoutChangesNoBit(t *testing.T) {
	for _, cfg := range mtpModels {
		m := newModel(t, cfg)
		type result struct{ loss, norm float64 }
		train := func(cuts, ranks []int, split, recompute bool) (rs []result) {
			o := stages.Options{Seed: 5, Optimizer: adamw, StepTokens: 6 * cfg.Context}
			p := newPipeOn(t, newDevice(t, 2), m, cuts, ranks, o)
			for step := range 4 {
				mbs := microbatches(cfg, int64(step+1), 6, 2)
				for i := range mbs {
					mbs[i].Recompute = recompute && i != 1
				}
				loss, norm := p.step(step+1, mbs, split)
				rs = append(rs, result{loss, norm})
			}
			return rs
		}
		want := train(nil, []int{0}, false, false)
		if math.IsNaN(want[3].norm) || want[3].loss > 3.5 {
			t.Fatalf("%v: losses and norms %v", cfg, want)
		}
		mtp, head := 1+cfg.Layers, 1+cfg.Layers+cfg.MTPLayers // where they begin
		for _, c := range []struct {
			name             string
			cuts, ranks      []int
			split, recompute bool
		}{
			{"together on the last rank", []int{2}, []int{0, 1}, false, false},
			{"alone, the head with the embedding", []int{mtp, head}, []int{0, 1, 0}, true, false},
			{"alone, on three ranks", []int{mtp, head}, []int{0, 1, 2}, false, false},
			{"with the embedding", []int{head}, []int{0, 1}, false, true},
			{"with the embedding, in other chunks", []int{2, mtp, head}, []int{0, 1, 0, 1}, true, false},
			{"chunks of one rank", []int{1, mtp, head}, []int{0, 0, 0, 0}, false, true},
			{"empty chunks around", []int{mtp, mtp, head, head}, []int{0, 1, 1, 1, 1}, true, true},
		} {
			for i, got := range train(c.cuts, c.ranks, c.split, c.recompute) {
				if got != want[i] {
					t.Errorf("%s, tied %v, %s: step %d has %v, on one rank %v", cfg.Family, cfg.Tie, c.name, i+1, got, want[i])
				}
			}
		}
	}
}

// mtpLosses runs one sequence forward and back, and returns the loss of every depth
// and its targets.
func mtpLosses(t *testing.T, p *pipe, mb stages.Microbatch) (losses, targets []float64) {
	s := p.stages[0]
	p.run(0, func(l *tensorops.List) { s.Forward(l, 0, &mb, tensorops.Tensor{}) })
	for k := range p.model.Config.MTPLayers + 1 {
		sum, n := s.DepthLoss(0, mb.Index, k)
		losses, targets = append(losses, sum), append(targets, n)
	}
	var mean float64
	for k := 1; k < len(losses); k++ {
		mean += losses[k] / max(targets[k], 1) / float64(len(losses)-1)
	}
	if got := s.MTPLoss(0, mb.Index); math.Abs(got-mean) > 1e-12*mean || mean == 0 {
		t.Errorf("the loss of multi-token prediction is %v, want %v", got, mean)
	}
	p.run(0, func(l *tensorops.List) { s.Backward(l, 0, mb.Index, tensorops.Tensor{}) })
	return losses, targets
}

// TestMTPSees: at every depth a target is predicted from the tokens up to itself:
// from the one before it, which the layer of that depth takes in, and never from one
// behind.
func TestMTPSees(t *testing.T) {
	for _, cfg := range mtpModels {
		cfg.Dropout = 0
		p := newPipe(t, newDevice(t, 1), newModel(t, cfg), nil, true)
		const at = 6 // the only target, in the second of two sequences
		mb := microbatches(cfg, 1, 2, 2)[0]
		for i := range mb.Targets {
			mb.Targets[i] = tensorops.IgnoreTarget
		}
		mb.Targets[cfg.Context+at] = 5
		want, targets := mtpLosses(t, p, mb)
		for k, n := range targets {
			if n != 1 || want[k] == 0 {
				t.Errorf("%s, depth %d: %g targets, loss %g", cfg.Family, k, n, want[k])
			}
		}
		for i := range mb.Tokens {
			old := mb.Tokens[i]
			mb.Tokens[i] = (old + 1) % int32(cfg.Vocab)
			got, _ := mtpLosses(t, p, mb)
			mb.Tokens[i] = old
			seen := i >= cfg.Context && i <= cfg.Context+at
			for k := range got {
				if (got[k] != want[k]) != seen {
					t.Errorf("%s, depth %d: another token at %d of sequence %d changes the loss at %d from %g to %g", cfg.Family, k, i%cfg.Context,
						i/cfg.Context, at, want[k], got[k])
				}
			}
		}
	}
}

// Each depth has a target less in every sequence.
func TestMTPTargets(t *testing.T) {
	cfg := mtpModels[2]
	p := newPipe(t, newDevice(t, 1), newModel(t, cfg), nil, true)
	mb := microbatches(cfg, 1, 3, 3)[0]
	for i := range mb.Targets {
		mb.Targets[i] = int32(i % cfg.Vocab)
	}
	_, targets := mtpLosses(t, p, mb)
	for k, n := range targets {
		if want := float64(3 * (cfg.Context - k)); n != want {
			t.Errorf("depth %d has %g targets, want %g", k, n, want)
		}
	}
}

// With a weight of 0 the model trains as it does without further tokens; with one it
// does not. Either way only the main loss is told, and validation has no other.
func TestMTPWeight(t *testing.T) {
	for _, cfg := range mtpModels {
		cfg.Dropout = 0
		losses := func(weight float64, layers int) (train []float64, eval float64) {
			c := cfg
			c.MTPWeight, c.MTPLayers = weight, layers
			m := newModel(t, c)
			p := newPipe(t, newDevice(t, 2), m, []int{1 + c.Layers, 1 + c.Layers + c.MTPLayers}, true)
			for step := range 3 {
				loss, _ := p.step(step+1, microbatches(c, int64(step+1), 4, 2), false)
				train = append(train, loss)
			}
			mb := microbatches(c, 9, 2, 2)[0]
			mb.Train = false
			var x tensorops.Tensor
			for v, s := range p.stages {
				p.run(v, func(l *tensorops.List) { x = stages.Only(s.Forward(l, v, &mb, x)) })
				if v < 2 && x.Dim(0) != mb.Sequences {
					t.Errorf("chunk %d passes on %v in validation", v, x)
				}
			}
			eval, _ = p.stages[2].Loss(2, 0)
			for v, s := range p.stages {
				s.Finish(v, 0)
			}
			return train, eval
		}
		without, evalWithout := losses(0.3, 0)
		unweighted, evalUnweighted := losses(0, cfg.MTPLayers)
		for i := range unweighted {
			if math.Abs(unweighted[i]-without[i]) > 1e-6 {
				t.Errorf("%s: step %d has %.9g with weight 0, %.9g without", cfg.Family, i+1, unweighted[i], without[i])
			}
		}
		if math.Abs(evalUnweighted-evalWithout) > 1e-4 {
			t.Errorf("%s: validation %.9g with weight 0, %.9g without", cfg.Family, evalUnweighted, evalWithout)
		}
		with, eval := losses(0.3, cfg.MTPLayers)
		if with[0] != without[0] || with[2] == without[2] || eval == evalWithout {
			t.Errorf("%s: losses %v with %d layers, %v without; validation %v and %v", cfg.Family, with, cfg.MTPLayers, without, eval, evalWithout)
		}
	}
}

// A model that sees the same sequences again and again learns to predict all depths.
func TestMTPLearns(t *testing.T) {
	for _, cfg := range mtpModels {
		cfg.Dropout = 0
		p := newPipe(t, newDevice(t, 2), newModel(t, cfg), nil, true)
		mbs := microbatches(cfg, 1, 4, 4)
		before, _ := mtpLosses(t, p, mbs[0])
		p.run(0, p.stages[0].ClearGrads)
		for i := range 80 {
			p.step(i+1, mbs, false)
		}
		after, _ := mtpLosses(t, p, mbs[0])
		for k := range after {
			if after[k] > before[k]/3 {
				t.Errorf("%s, depth %d: loss %g after 80 steps on the same batch, %g before", cfg.Family, k, after[k], before[k])
			}
		}
	}
}

// A chunk that has some of the layers, an edge that carries the wrong depths, and a
// gradient that is not the other rank's are refused.
func TestMTPRefuses(t *testing.T) {
	cfg := mtpModels[0]
	m, dev := newModel(t, cfg), newDevice(t, 1)
	s := dev.NewStream("one of two layers")
	if _, err := stages.NewStage(m, s, []stages.ChunkSpec{{First: 0, Last: 2 + cfg.Layers}}, stages.Options{Optimizer: adamw}); !errors.Is(err,
		stages.ErrModel) {
		t.Errorf("one of two layers: %v, want ErrModel", err)
	}
	p := newPipe(t, dev, m, []int{1 + cfg.Layers, 3 + cfg.Layers}, false)
	if in, out := p.stages[1].Depths(1); in != 1 || out != 3 {
		t.Errorf("%d depths go in and %d come out, want 1 and 3", in, out)
	}
	if p.stages[1].NeedsTokens(1) != true || p.stages[1].ComputesLoss(1) {
		t.Error("the chunk of multi-token prediction needs tokens and no targets")
	}
	mb := microbatches(cfg, 1, 2, 2)[0]
	for _, n := range []int{1, 2, 4} {
		l := p.stream[2].NewList()
		p.stages[2].Forward(l, 2, &mb, l.Alloc(tensorops.Float32, n*mb.Sequences, mb.Positions, cfg.Hidden))
		if err := tensorops.Run(p.stream[2], l); !errors.Is(err, stages.ErrInput) {
			t.Errorf("a head that is given %d of 3 depths: %v, want ErrInput", n, err)
		}
	}
	l := p.stream[0].NewList()
	g := stages.TiedGrad{Param: 0, Uses: stages.Uses{1: true, 2: true}, Grad: l.Alloc(tensorops.Float32, 2*cfg.Vocab, cfg.Hidden)}
	if err := p.stages[0].TakeTied(g); !errors.Is(err, stages.ErrInput) {
		t.Errorf("two uses where one is to come: %v, want ErrInput", err)
	}
	g.Grad = g.Grad.RowRange(0, cfg.Vocab)
	if err := p.stages[0].TakeTied(g); err != nil {
		t.Errorf("the sum of two uses: %v", err)
	}
	p.run(0, p.stages[0].GradNorms)
}
