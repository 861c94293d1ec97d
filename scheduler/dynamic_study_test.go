package scheduler

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

var (
	studyFlag  = flag.Bool("study", false, "run TestDynamicStudy, which writes the tables of BENCHMARKS.md")
	studySeeds = flag.Int("seeds", 40, "seeds of TestDynamicStudy")
)

var studied = []Spec{
	{Schedule: OneFOneB, Ranks: 4, Chunks: 1, Microbatches: 16},
	{Schedule: OneFOneB, Ranks: 8, Chunks: 1, Microbatches: 32},
	{Schedule: Interleaved, Ranks: 4, Chunks: 2, Microbatches: 16},
	{Schedule: ZBH1, Ranks: 4, Chunks: 1, Microbatches: 16},
	{Schedule: ZBH1, Ranks: 8, Chunks: 1, Microbatches: 32},
	{Schedule: ZBH2, Ranks: 4, Chunks: 1, Microbatches: 16},
	{Schedule: ZBV, Ranks: 4, Chunks: 2, Microbatches: 16},
	{Schedule: ZBV, Ranks: 8, Chunks: 2, Microbatches: 32},
	{Schedule: VHalf, Ranks: 4, Chunks: 2, Microbatches: 16},
	{Schedule: VHalf, Ranks: 8, Chunks: 2, Microbatches: 32},
	{Schedule: VMin, Ranks: 4, Chunks: 2, Microbatches: 16},
	{Schedule: VMin, Ranks: 8, Chunks: 2, Microbatches: 32},
	{Schedule: Auto, Ranks: 4, Chunks: 2, Microbatches: 16, MaxInFlight: 6},
}

// condition is what a table and the dynamic order by its priorities are played in. Among
// the links each way between two ranks has its own time; slow makes one rank take 1.5
// times as long, by turns.
type condition struct {
	link, jitter float64
	slow         bool
}

func (c condition) String() string {
	switch {
	case c.link > 0:
		return fmt.Sprint("links of ", c.link)
	case c.slow:
		return fmt.Sprintf("%.0f %% slow", 100*c.jitter)
	}
	return fmt.Sprintf("%.0f %%", 100*c.jitter)
}

func (c condition) machine(ranks, seed int) Machine {
	m := Machine{Costs: UnitCosts}
	if c.slow {
		m.Costs = Slowed(m.Costs, seed%ranks, 1.5)
	}
	m.Costs = Jittered(m.Costs, c.jitter, uint64(seed))
	if c.link > 0 {
		m.Link = func(from, to int) float64 {
			u := float64(mix(mix(uint64(seed))^uint64(from)<<32^uint64(to))>>11) / (1 << 53)
			return -c.link * math.Log(1-u) // exponential
		}
	}
	return m
}

// TestDynamicStudy writes makespans by the table's, and holds what the order is for: with
// the most that a rank of the table holds as the bound of all, it takes at most as long as
// the table, but for a thousandth.
func TestDynamicStudy(t *testing.T) {
	if !*studyFlag {
		t.Skip("a study: give -study")
	}
	for _, conditions := range [][]condition{
		{{link: 0.1}, {link: 0.2}, {link: 0.5}, {link: 1}},
		{{}, {jitter: 0.1}, {jitter: 0.3}, {slow: true}, {slow: true, jitter: 0.1}, {slow: true, jitter: 0.3}},
	} {
		var text strings.Builder
		text.WriteString("\n| table | bound |")
		for _, c := range conditions {
			fmt.Fprintf(&text, " %v |", c)
		}
		text.WriteString("\n|---|---|" + strings.Repeat("---|", len(conditions)) + "\n")
		for _, s := range studied {
			table := generate(t, s)
			bound := slices.Max(peakInFlight(table))
			fmt.Fprintf(&text, "| %s p%d v%d m%d | %d |", s.Schedule, s.Ranks, s.Chunks, s.Microbatches, bound)
			for _, c := range conditions {
				mean := 0.0
				for seed := range *studySeeds {
					m := c.machine(s.Ranks, seed)
					static, err := m.Simulate(table)
					if err != nil {
						t.Fatal(err)
					}
					order, tl, err := m.SimulateDynamic(priorities(t, table, bound))
					if err != nil {
						t.Fatal(err)
					}
					if held := slices.Max(peakInFlight(order)); held > bound {
						t.Fatalf("%+v, %v, seed %d: a rank holds %d, the bound is %d", s, c, seed, held, bound)
					}
					mean += tl.Makespan / static.Makespan / float64(*studySeeds)
				}
				if fmt.Fprintf(&text, " %.4f |", mean); mean > 1.001 {
					t.Errorf("%+v, %v: %.4f times the table's makespan", s, c, mean)
				}
			}
			text.WriteString("\n")
		}
		t.Log(text.String())
	}
}
