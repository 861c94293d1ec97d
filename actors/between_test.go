package actors_test

import (
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
)

// TestBetween: a run whose attempts end between two orders and are renewed computes no action again, in steps and in validations, whenever
// the end was requested. Its figures and its state are those of an undisturbed run. With post-validation, wrong predictions make the number
// of actions depend on time.
func TestBetween(t *testing.T) {
	const m = sequences / microbatchSize
	model := small(families[0])
	oneFOneB := training{model: model, table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m}), cuts: []int{2}}
	interleaved := training{model: model, cuts: []int{1, 2, 4},
		table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m, MicrobatchGroupSize: 2})}
	for name, r := range map[string]renewed{
		"1f1b":                 {training: oneFOneB, clip: clipNorm},
		"interleaved, shadows": {training: interleaved, clip: clipNorm, shadowed: true},
		"post-validation, an order is sent ahead": {training: oneFOneB, clip: 1e9, postValidate: true},
		"post-validation, shadows":                {training: oneFOneB, clip: 1e9, postValidate: true, shadowed: true},
	} {
		t.Run(name, func(t *testing.T) {
			shadows := 0
			r.threads, r.steps, r.every, r.evalLens, r.shadows = 2, 9, 1, []int{model.Context, 3}, &shadows
			want, all := &log{}, &moments{}
			if out := wait(t, start(t, r.spec(t, want, all))); out.Err != nil {
				t.Fatal(out.Err)
			}
			known, renewals := states(want, r.steps), 0
			r.every, r.between = 2, true
			for seed := range uint64(4) {
				got, m, n := r.run(t, seed, known)
				renewals += n
				if a, b := got.figures(), want.figures(); !slices.Equal(a, b) {
					t.Fatalf("seed %d, %d renewals: %x, undisturbed %x", seed, n, a, b)
				}
				if a, b := m.actions.Load(), all.actions.Load(); a != b && !r.postValidate {
					t.Errorf("seed %d, %d renewals: %d actions, undisturbed %d", seed, n, a, b)
				}
				sameState(t, name, want.saves[len(want.saves)-1], got.saves[len(got.saves)-1])
			}
			if renewals < 4 {
				t.Errorf("there are only %d renewals", renewals)
			}
		})
	}
}
