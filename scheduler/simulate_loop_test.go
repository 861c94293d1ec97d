package scheduler

import (
	"math"
	"reflect"
	"testing"
)

// TestLoopIsThePlayer: a table in its own order, on ranks that share nothing, comes out of
// the loop as it does out of the faster pass, to the bit.
func TestLoopIsThePlayer(t *testing.T) {
	specs(func(s Spec) {
		if !legal(s) || s.Microbatches%3 > 0 {
			return
		}
		table := generate(t, s)
		for _, link := range []Link{nil, func(from, to int) float64 { return 0.3 * float64(from+to) }} {
			for _, credits := range []*Credits{nil, &check(t, table).Credits} {
				m := Machine{Costs: Jittered(UnitCosts, 0.4, 3), Link: link, Credits: credits}
				ix, err := newIndex(table)
				if err != nil {
					t.Fatal(err)
				}
				p := newPlayer(table, ix)
				p.Machine = m
				looped := p.playInLoop()
				timeline, err := m.Simulate(table)
				if err != nil || looped != nil {
					if err == nil || looped == nil {
						t.Fatalf("%+v: %v in the loop, %v without", s, looped, err)
					}
				} else if !reflect.DeepEqual(p.timeline, timeline) {
					t.Fatalf("%+v: other times", s)
				}
			}
		}
	})
}

// TestHugeCosts: times beyond what a number holds are infinite, or refused; nothing panics.
func TestHugeCosts(t *testing.T) {
	for _, s := range []Spec{{Ranks: 2, Chunks: 1, Microbatches: 1, ForwardOnly: true},
		{Schedule: DualPipeV, Ranks: 2, Chunks: 2, Microbatches: 4}} {
		table := generate(t, s)
		for _, cores := range []float64{0, 0.1, 1, 2} {
			m := Machine{Costs: func(int, Action) float64 { return math.MaxFloat64 }}
			if cores > 0 {
				m.Share = SharedCores(cores)
			}
			if tl, err := m.Simulate(table); err == nil && tl.Makespan < math.MaxFloat64 {
				t.Errorf("%+v on %v cores: makespan %v", s, cores, tl.Makespan)
			}
		}
	}
}

// BenchmarkLoop plays a table in its own order, which needs no loop, with and without.
func BenchmarkLoop(b *testing.B) {
	table, err := Generate(Spec{Schedule: Interleaved, Ranks: 256, Chunks: 4, Microbatches: 1024})
	if err != nil {
		b.Fatal(err)
	}
	ix, err := newIndex(table)
	if err != nil {
		b.Fatal(err)
	}
	for name, play := range map[string]func(*player) error{
		"player": func(p *player) error { return p.play(Machine{Costs: UnitCosts}) },
		"loop":   func(p *player) error { p.Machine = Machine{Costs: UnitCosts}; return p.playInLoop() },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := play(newPlayer(table, ix)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
