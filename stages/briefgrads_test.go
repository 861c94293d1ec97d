package stages_test

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Gradients that exist only until the update have the same bits as those that stay, and leave their memory between
// steps: of one microbatch or several, of tied weights, by B or by I and W, in steps that are skipped too.
func TestBriefGrads(t *testing.T) {
	for name, cfg := range map[string]stages.Config{
		"gpt2":  {Family: stages.GPT2, Layers: 2, Hidden: 128, Heads: 4, KVHeads: 4, FFN: 256, Context: 8, Vocab: 131, Tie: true, Dropout: 0.1},
		"llama": {Family: stages.Llama, Layers: 2, Hidden: 128, Heads: 4, KVHeads: 2, FFN: 256, Context: 8, Vocab: 131, RopeTheta: 1000},
		"mtp": {Family: stages.Llama, Layers: 2, Hidden: 128, Heads: 4, KVHeads: 2, FFN: 256, Context: 8, Vocab: 131, RopeTheta: 1000,
			Tie: true, MTPLayers: 1, MTPWeight: 0.3},
	} {
		m := newModel(t, cfg)
		for _, c := range []struct {
			name         string
			cuts, ranks  []int
			split        bool
			microbatches int
		}{
			{"one stage", nil, []int{0}, false, 1},
			{"I and W", nil, []int{0}, true, 1},
			{"two ranks", []int{2}, []int{0, 1}, false, 1},
			{"two chunks of a rank, three microbatches", []int{2}, []int{0, 0}, true, 3},
		} {
			t.Run(name+" "+c.name, func(t *testing.T) {
				o := stages.Options{Seed: 5, Optimizer: adamw}
				usual := newPipeOn(t, newDevice(t, 2), m, c.cuts, c.ranks, o)
				o.BriefGrads = true
				brief := newPipeOn(t, newDevice(t, 2), m, c.cuts, c.ranks, o)
				for step := range 4 {
					batch := func() []stages.Microbatch {
						return microbatches(cfg, int64(step+1), 2*c.microbatches, 2)
					}
					loss, norm, u := usual.passes(step+1, batch(), c.split)
					loss2, norm2, _ := brief.passes(step+1, batch(), c.split)
					if loss != loss2 || norm != norm2 {
						t.Fatalf("step %d has loss %g and norm %g, want %g and %g", step+1, loss2, norm2, loss, norm)
					}
					end := applied
					if step == 2 {
						end = skipped
					}
					usual.end(end, u)
					brief.end(end, u)
					if !slices.EqualFunc(usual.saved(), brief.saved(), sameSaved) {
						t.Fatalf("step %d: weights or state differ", step+1)
					}
				}
				large := 0 // elements of the gradients that are brief
				for _, p := range m.Params {
					if tied := cfg.Tie && len(c.ranks) > 1 && c.ranks[1] > 0 && p.Shape[0] == cfg.Vocab; p.Len() >= 16<<10 && !tied {
						large += p.Len()
					}
				}
				if saved := usual.inUse() - brief.inUse(); saved < int64(4*large) || saved > int64(4*large*9/8) {
					t.Errorf("between steps %d bytes less are in use, gradients are %d", saved, 4*large)
				}
			})
		}
	}
}

// Where a step is one microbatch, gradients take the memory that its activations leave.
func TestBriefGradsMemory(t *testing.T) {
	m := newModel(t, stages.Config{Family: stages.GPT2, Layers: 12, Hidden: 768, Heads: 12, KVHeads: 12, FFN: 3072, Context: 256, Vocab: 50257,
		Tie: true})
	taken := func(brief bool) int64 {
		dry := tensorops.NewDryStream()
		s, err := stages.NewStage(m, dry, []stages.ChunkSpec{{Last: len(m.Symbols())}},
			stages.Options{Optimizer: adamw, StepTokens: 1024, BriefGrads: brief})
		if err != nil {
			t.Fatal(err)
		}
		for step := range 3 {
			ids := make([]int32, 1024)
			mb := stages.Microbatch{Step: int64(step), Sequences: 4, Positions: 256, Tokens: ids, Targets: ids, Train: true}
			for _, record := range []func(l *tensorops.List){
				func(l *tensorops.List) { s.Forward(l, 0, &mb) },
				func(l *tensorops.List) { s.Backward(l, 0, 0) },
				s.GradNorms,
				func(l *tensorops.List) { s.Apply(l, stages.Update{Count: 1}) },
			} {
				l := dry.NewList()
				record(l)
				if err := tensorops.Run(dry, l); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return dry.Memory().Taken
	}
	usual, brief := taken(false), taken(true)
	if gradients := 4 * m.Parameters(); usual-brief < gradients*6/10 {
		t.Errorf("%d bytes are taken, %d where gradients of %d stay", brief, usual, gradients)
	}
}
