package scheduler

import "testing"

// BenchmarkMeasured looks at a step of 64 ranks with 16 chunks each and 256 microbatches.
func BenchmarkMeasured(b *testing.B) {
	table, err := Generate(Spec{Schedule: Interleaved, Ranks: 64, Chunks: 16, Microbatches: 256})
	if err != nil {
		b.Fatal(err)
	}
	tl, err := Machine{Costs: Jittered(UnitCosts, 0.3, 1), Link: func(_, _ int) float64 { return 0.1 }}.Simulate(table)
	if err != nil {
		b.Fatal(err)
	}
	step := StepOf(table, tl)
	b.Run("Critical", func(b *testing.B) {
		for b.Loop() {
			if _, err := step.Critical(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Idle", func(b *testing.B) {
		for b.Loop() {
			if _, err := step.Idle(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
