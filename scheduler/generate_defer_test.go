package scheduler

import (
	"errors"
	"testing"
)

// TestDeferWeights: every schedule takes deferred weight gradients, in their order, and
// the last ones stand at the end of the last chunk's rank.
func TestDeferWeights(t *testing.T) {
	for _, name := range Schedules() {
		s := Spec{Schedule: name, Ranks: 3, Chunks: DefaultChunks(name), Microbatches: 9}
		if name == None {
			s.Ranks = 1
		}
		for _, n := range []int{1, 4, 9} {
			s.DeferWeights = n
			table := generate(t, s)
			report, err := Check(table)
			if err != nil {
				t.Fatalf("%s, %d deferred: %v\n%s", name, n, err, table)
			}
			if report.OutOfOrder.Any() {
				t.Errorf("%s, %d deferred: out of order", name, n)
			}
			last := table.NumChunks - 1
			row := table.Ranks[table.RankOf(last)]
			if name == Auto {
				continue // it may be a played table, which has them where it likes
			}
			for i := range n {
				want := Action{Chunk: int32(last), Type: W, Microbatch: int32(9 - n + i)}
				if got := row[len(row)-n+i]; got != want {
					t.Errorf("%s, %d deferred: %v at the end, want %v", name, n, got, want)
				}
			}
		}
	}
	for _, n := range []int{-1, 10} {
		if _, err := Generate(Spec{Ranks: 2, Chunks: 1, Microbatches: 9, DeferWeights: n}); !errors.Is(err, ErrSpec) {
			t.Errorf("%d of 9 deferred: error %v, want ErrSpec", n, err)
		}
	}
}

// TestDeferWeightsGains: where the last chunk has more to do than the others, as with a
// large head, 1F1B with its weight gradients put off ends earlier.
func TestDeferWeightsGains(t *testing.T) {
	costs := func(rank int, a Action) float64 {
		if a.Chunk == 3 {
			return 1.5 * UnitCosts(rank, a)
		}
		return UnitCosts(rank, a)
	}
	s := Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 8}
	plain := simulated(t, generate(t, s), costs)
	s.DeferWeights = 4
	if put := simulated(t, generate(t, s), costs); put.Makespan >= plain.Makespan {
		t.Errorf("put off it takes %v, otherwise %v", put.Makespan, plain.Makespan)
	}
}
