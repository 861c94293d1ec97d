package forecast

import (
	"math"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
)

// TestPairsInTurns: the time of a pair is that of both lists in turns: what one computes hides the exchanges of the other.
func TestPairsInTurns(t *testing.T) {
	begin := func(number int, ms float64) step {
		return step{ms: ms, dim: grid.Expert, begins: true, number: number}
	}
	one := func(number int) step { return step{awaits: true, number: number} }
	pass := func(ms, exchange float64) []step { // a part, an exchange, a part, another, and a part
		return []step{{share: ms}, begin(1, exchange), one(1), {share: ms}, begin(2, exchange), one(2), {share: ms}}
	}
	for _, c := range []struct {
		name     string
		lists    [][]step
		alone    float64 // both, one after the other
		together float64
	}{
		{"hidden", [][]step{pass(1, 1), pass(1, 1)}, 10, 6},
		{"half hidden", [][]step{pass(1, 2), pass(1, 2)}, 14, 10},
		{"the link is the limit", [][]step{pass(1, 3), pass(1, 3)}, 18, 14},
		{"one has no exchange", [][]step{pass(1, 1), timed(nil, 4)}, 9, 8},
		{"two exchanges at once", [][]step{{{share: 1}, begin(1, 1), begin(2, 1), one(1), one(2), {share: 1}},
			{{share: 3}, begin(1, 2), one(1), {share: 1}}}, 10, 7},
		{"a wait for all", [][]step{{{share: 1}, begin(1, 5), {awaits: true}, {share: 1}}, timed(nil, 4)}, 11, 11},
		{"an exchange within one rank", [][]step{{{share: 1}, one(7), {share: 1}}, timed(nil, 4)}, 6, 6},
	} {
		alone := 0.0
		for _, l := range c.lists {
			alone += play(l, 1).ms
		}
		together := play(inTurns(c.lists...), 1).ms
		if math.Abs(alone-c.alone) > 1e-9 || math.Abs(together-c.together) > 1e-9 {
			t.Errorf("%s: %v ms one after the other and %v together, want %v and %v", c.name, alone, together, c.alone, c.together)
		}
	}
	if got := timed([]step{{share: 0.25}, begin(1, 3), {share: 0.75}}, 8); got[0].share != 2 || got[1].ms != 3 || got[2].share != 6 {
		t.Errorf("shares in ms: %+v", got)
	}
}
