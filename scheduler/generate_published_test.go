package scheduler

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestPublishedFiles: generators make the very orders that other systems publish.
func TestPublishedFiles(t *testing.T) {
	for file, s := range map[string]Spec{
		"pytorch_zb1p_2rank_2stagep_compute.csv":     {Schedule: ZB1P, Ranks: 2, Chunks: 2, Microbatches: 8},
		"torchtitan_interleaved1f1b_8ranks_16mb.csv": {Schedule: Interleaved, Ranks: 8, Chunks: 2, Microbatches: 16},
		"torchtitan_example.csv":                     {Schedule: Interleaved, Ranks: 2, Chunks: 2, Microbatches: 4},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		want, err := ReadCSV(file, string(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := generate(t, s); got.String() != want.String() {
			t.Errorf("%s holds\n%s\n%+v makes\n%s", file, want, s, got)
		}
	}
}

// TestUShapeWarmUp: rank 0 runs forwards and backwards of its last chunk, three units
// each, alone until its first gradient comes back, 2(p−1) units after the first of them:
// ⌈2(p−1)/3⌉ + 1 times. Published formulas for it are ⌊2(p−1)/3 + 3/2⌋, which
// is one less for p = 6, 9, 12 …, and ⌊(4p+1)/6⌋, which is one less for every p.
func TestUShapeWarmUp(t *testing.T) {
	for p := 2; p <= 12; p++ {
		table := generate(t, Spec{Schedule: UShape, Ranks: p, Chunks: 2, Microbatches: 4 * p})
		k := 0
		for _, a := range table.Ranks[0] {
			if a.Type == B && a.Chunk == 0 {
				break
			}
			if a.Type == B {
				k++
			}
		}
		if want := (2*(p-1)+2)/3 + 1; k != want {
			t.Errorf("%d ranks: %d times, want %d", p, k, want)
		}
	}
}

// TestAuto: the chosen table ends no later than any other schedule's that fits the
// spec and the bound, with costs that differ from chunk to chunk and slow links.
func TestAuto(t *testing.T) {
	uneven := func(rank int, a Action) float64 {
		return []float64{1, 1.5, 0.7, 1.2, 2, 0.5, 1, 1.1}[a.Chunk%8] * map[Type]float64{F: 1, I: 1.3, W: 0.8, B: 2.1}[a.Type]
	}
	for _, costs := range []Costs{UnitCosts, uneven, Slowed(uneven, 1, 1.5), Jittered(UnitCosts, 0.5, 3)} {
		for _, link := range []Link{nil, func(_, _ int) float64 { return 0.4 }} {
			for _, bound := range []int{0, 4, 6, 9} {
				for chunks := 1; chunks <= 2; chunks++ {
					s := Spec{Schedule: Auto, Ranks: 4, Chunks: chunks, Microbatches: 9, MaxInFlight: bound, Costs: costs, Link: link}
					table := generate(t, s)
					report, err := Check(table)
					if err != nil {
						t.Fatalf("%+v: %v", s, err)
					}
					m := Machine{Costs: costs, Link: link}
					tl, err := m.Simulate(table)
					if err != nil {
						t.Fatal(err)
					}
					for rank, peak := range report.PeakInFlight {
						if bound > 0 && peak > bound {
							t.Errorf("bound %d, but rank %d holds %d", bound, rank, peak)
						}
					}
					for _, name := range Schedules() {
						fixed := Spec{Schedule: name, Ranks: 4, Chunks: chunks, Microbatches: 9}
						other, err := Generate(fixed)
						if err != nil || name == Auto || name == UShape {
							continue
						}
						if bound > 0 && slices.Max(peakInFlight(other)) > bound {
							continue
						}
						if o, err := m.Simulate(other); err != nil || o.Makespan < tl.Makespan {
							t.Errorf("bound %d, %d chunks: auto takes %v, %s %v (%v)", bound, chunks, tl.Makespan, name, o.Makespan, err)
						}
					}
				}
			}
		}
	}
}
