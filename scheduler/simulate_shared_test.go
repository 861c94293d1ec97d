package scheduler

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestSharedCores: with a core for each rank the clock's play is the other one's, and
// with fewer the work is what it was.
func TestSharedCores(t *testing.T) {
	for _, name := range Schedules() {
		s := Spec{Schedule: name, Ranks: 3, Chunks: 1, Microbatches: 9}
		switch name {
		case None:
			s.Ranks = 1
		case Interleaved, ZBV, VHalf, VMin, DualPipeV, UShape:
			s.Chunks = 2
		}
		table := generate(t, s)
		costs := Jittered(UnitCosts, 0.3, 5)
		own := simulated(t, table, costs)
		work := 0.0
		for _, b := range own.Busy {
			work += b
		}
		for _, cores := range []float64{float64(s.Ranks), 1, 0.5} {
			tl, err := Machine{Costs: costs, Share: SharedCores(cores)}.Simulate(table)
			if err != nil {
				t.Fatalf("%s on %v cores: %v", name, cores, err)
			}
			want := own.Makespan
			if cores <= 1 { // one that runs alone has all, so there is never an idle core
				want = work / cores
			}
			if math.Abs(tl.Makespan-want) > 1e-9*want {
				t.Errorf("%s on %v cores takes %v, want %v", name, cores, tl.Makespan, want)
			}
		}
		between, err := Machine{Costs: costs, Share: SharedCores(1.5)}.Simulate(table)
		if err != nil {
			t.Fatal(err)
		}
		if least := max(own.Makespan, work/1.5) * (1 - 1e-9); between.Makespan < least {
			t.Errorf("%s on 1.5 cores takes %v, less than %v", name, between.Makespan, least)
		}
	}
	for _, cores := range []float64{-1, 0, math.NaN()} {
		if _, err := (Machine{Costs: UnitCosts, Share: SharedCores(cores)}).Simulate(generate(t,
			Spec{Ranks: 1, Chunks: 1, Microbatches: 1})); !errors.Is(err, ErrCosts) {
			t.Errorf("%v cores: error %v, want ErrCosts", cores, err)
		}
	}
}

// TestLinks: a message's way lengthens the pipeline's, there and back.
func TestLinks(t *testing.T) {
	table := generate(t, Spec{Schedule: GPipe, Ranks: 3, Chunks: 1, Microbatches: 1})
	for cores, share := range map[string]func(int) float64{"own": nil, "three": SharedCores(3)} {
		m := Machine{Costs: UnitCosts, Share: share, Link: func(from, to int) float64 { return 0.25 * math.Abs(float64(from-to)) }}
		tl, err := m.Simulate(table)
		if err != nil || tl.Makespan != 3*3+4*0.25 {
			t.Errorf("makespan %v (%v) on %s cores, want %v", tl.Makespan, err, cores, 3*3+4*0.25)
		}
	}
}

// TestCosts: a slow rank is slow, jitter stays within its spread, is the same each
// time and averages out.
func TestCosts(t *testing.T) {
	slow := Slowed(UnitCosts, 1, 1.5)
	if a, b := slow(0, Action{Type: B}), slow(1, Action{Type: B}); a != 2 || b != 3 {
		t.Errorf("rank 0 takes %v and the slow rank %v, want 2 and 3", a, b)
	}
	costs, sum, n := Jittered(UnitCosts, 0.1, 7), 0.0, 0
	for m := range 400 {
		for typ := F; typ <= B; typ++ {
			a := Action{Chunk: int32(m % 5), Type: typ, Microbatch: int32(m)}
			c := costs(0, a) / UnitCosts(0, a)
			if c < 0.9 || c > 1.1 || c != costs(0, a)/UnitCosts(0, a) {
				t.Fatalf("%v costs %v of its cost", a, c)
			}
			sum += c
			n++
		}
	}
	if mean := sum / float64(n); math.Abs(mean-1) > 0.01 {
		t.Errorf("the mean is %v", mean)
	}
}

// TestMessageThatNeverArrives: on shared cores a link that takes forever is a deadlock.
func TestMessageThatNeverArrives(t *testing.T) {
	table := generate(t, Spec{Ranks: 2, Chunks: 1, Microbatches: 2})
	never := func(int, int) float64 { return math.Inf(1) }
	_, err := Machine{Costs: UnitCosts, Link: never, Share: SharedCores(1)}.Simulate(table)
	if want := "1F0 needs a message that never arrives"; !errors.Is(err, ErrDeadlock) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
