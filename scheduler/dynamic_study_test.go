package scheduler

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// The study plays tables and the dynamic orders that take them for priorities, under the
// same costs.

type studied struct {
	name string
	spec Spec
}

var studies = []studied{
	{"1f1b p4 m16", Spec{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 16}},
	{"interleaved p4 v2 m16", Spec{Schedule: Interleaved, Ranks: 4, Chunks: 2, Microbatches: 16}},
	{"zb-h1 p4 m16", Spec{Schedule: ZBH1, Ranks: 4, Chunks: 1, Microbatches: 16}},
	{"zb-h2 p4 m16", Spec{Schedule: ZBH2, Ranks: 4, Chunks: 1, Microbatches: 16}},
	{"zb-v p4 m16", Spec{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 16}},
	{"zb-v p8 m32", Spec{Schedule: ZBV, Ranks: 8, Chunks: 2, Microbatches: 32}},
	{"v-half p8 m32", Spec{Schedule: VHalf, Ranks: 8, Chunks: 2, Microbatches: 32}},
	{"v-min p8 m32", Spec{Schedule: VMin, Ranks: 8, Chunks: 2, Microbatches: 32}},
	{"auto p4 v1 m16, bound 4", Spec{Schedule: Auto, Ranks: 4, Chunks: 1, Microbatches: 16, MaxInFlight: 4}},
	{"auto p4 v2 m16, bound 6", Spec{Schedule: Auto, Ranks: 4, Chunks: 2, Microbatches: 16, MaxInFlight: 6}},
	{"auto p4 v2 m16, bound 8", Spec{Schedule: Auto, Ranks: 4, Chunks: 2, Microbatches: 16, MaxInFlight: 8}},
}

// condition is what the costs are like.
type condition struct {
	jitter float64
	slow   bool // one rank takes 1.5 times as long, by turns
}

var conditions = []condition{{0, false}, {0.1, false}, {0.3, false}, {0, true}, {0.1, true}, {0.3, true}}

func (c condition) costs(ranks int, seed uint64) Costs {
	costs := Costs(UnitCosts)
	if c.slow {
		costs = Slowed(costs, int(seed)%ranks, 1.5)
	}
	return Jittered(costs, c.jitter, seed)
}

func (c condition) String() string {
	s := fmt.Sprintf("%.0f %%", 100*c.jitter)
	if c.slow {
		s += " slow"
	}
	return s
}

var studySeeds = flag.Int("seeds", 40, "seeds of TestDynamicStudy")

// ratios are means over seeds, of makespans over the table's.
type ratios struct {
	dynamic, unannounced float64
	least                float64 // what no order can beat, whatever it holds
}

func study(t *testing.T, table *Table, bound []int, c condition) (mean ratios) {
	t.Helper()
	priorities, err := NewPriorities(table, bound, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := float64(*studySeeds)
	for seed := range *studySeeds {
		m := Machine{Costs: c.costs(table.NumRanks(), uint64(seed))}
		static := simulated(t, table, m.Costs).Makespan
		played := func(announce bool) float64 {
			out, tl, err := m.playDynamic(priorities, announce)
			if err != nil {
				t.Fatal(err)
			}
			for rank, peak := range peakInFlight(out) {
				if peak > bound[rank] {
					t.Fatalf("%v, seed %d: rank %d holds %d, the bound is %d", c, seed, rank, peak, bound[rank])
				}
			}
			return tl.Makespan / static
		}
		mean.dynamic += played(true) / n
		if testing.Verbose() {
			mean.unannounced += played(false) / n
		}
		mean.least += leastMakespan(table, m.Costs) / static / n
	}
	return mean
}

// leastMakespan is what any order of a table's actions takes at least: on some rank, the
// way of the first input to it, all its work, and the way of its last gradient down to
// the first chunk (of weight gradients nobody knows where they are done).
func leastMakespan(t *Table, costs Costs) float64 {
	before, after, work := make([]float64, t.NumRanks()), make([]float64, t.NumRanks()), make([]float64, t.NumRanks())
	split := false
	for r, row := range t.Ranks {
		before[r], after[r] = math.Inf(1), math.Inf(1)
		for _, a := range row {
			a.Overlap = false
			work[r] += costs(r, a)
			split = split || a.Type == W
		}
	}
	for m := range t.Microbatches {
		forwards, backwards := 0.0, 0.0
		for s := range t.NumChunks {
			r := t.RankOf(s)
			before[r], after[r] = min(before[r], forwards), min(after[r], backwards)
			forwards += costs(r, Action{Chunk: int32(s), Type: F, Microbatch: int32(m)})
			if !split {
				backwards += costs(r, Action{Chunk: int32(s), Type: B, Microbatch: int32(m)})
			}
		}
	}
	least := 0.0
	for r := range work {
		least = max(least, before[r]+work[r]+after[r])
	}
	return least
}

// TestDynamicStudy writes the ratios as a table (-v -seeds 200). It holds what the order
// is for: with the most that a rank of the table holds as the bound of all, and with each
// rank's own peak, it takes at most as long as the table, but for a thousandth.
func TestDynamicStudy(t *testing.T) {
	const most = 1.001
	var text strings.Builder
	fmt.Fprintf(&text, "makespan of the dynamic order / the table's, mean of %d seeds (/ without announcements; no order is below the last)\n\n| table | bound |", *studySeeds)
	for _, c := range conditions {
		fmt.Fprintf(&text, " %v |", c)
	}
	text.WriteString("\n|---|---|" + strings.Repeat("---|", len(conditions)) + "\n")
	for _, s := range studies {
		table := generate(t, s.spec)
		peaks := peakInFlight(table)
		bounds := [][]int{slices.Repeat([]int{slices.Max(peaks)}, len(peaks)), peaks}
		for i, bound := range bounds {
			if i > 0 && slices.Equal(bound, bounds[0]) {
				break
			}
			fmt.Fprintf(&text, "| %s | %s |", s.name, [...]string{fmt.Sprint(bound[0]), "each rank's peak"}[i])
			for _, c := range conditions {
				r := study(t, table, bound, c)
				fmt.Fprintf(&text, " **%.4f** (%.4f; %.3f) |", r.dynamic, r.unannounced, r.least)
				if r.dynamic > most {
					t.Errorf("%s, bound %v, %v: %.4f times the table's makespan, want at most %v", s.name, bound, c, r.dynamic, most)
				}
				if min(r.dynamic, 1) < r.least*(1-1e-9) {
					t.Errorf("%s, bound %v, %v: %.4f times the table's makespan, below the least, %.4f", s.name, bound, c, r.dynamic, r.least)
				}
			}
			text.WriteString("\n")
		}
	}
	t.Log(text.String())
}
