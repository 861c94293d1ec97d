package scheduler

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// TestPeriod: at unit costs, four ranks and eight microbatches a zero-bubble schedule
// whose ranks have no idle time inside repeats after its work alone. Where the first
// rank is the last to end, nothing is gained; where it waits inside its row, the
// waiting stays.
func TestPeriod(t *testing.T) {
	for _, c := range []struct {
		schedule     string
		cold, period float64
	}{
		{None, 24, 24},
		{GPipe, 33, 33},
		{OneFOneB, 33, 33},
		{Interleaved, 57, 57},
		{ZBH1, 27, 27},
		{ZBH2, 27, 24},
		{ZB1P, 27, 27},
		{ZBV, 51, 48},
		{VHalf, 57, 57},
		{VMin, 59, 59},
		{DualPipeV, 54, 54},
	} {
		s := Spec{Schedule: c.schedule, Ranks: 4, Chunks: DefaultChunks(c.schedule), Microbatches: 8}
		if c.schedule == None {
			s.Ranks = 1
		}
		table := generate(t, s)
		period, err := Machine{Costs: UnitCosts}.SteadyStateStep(table)
		if cold := simulated(t, table, UnitCosts).Makespan; err != nil || cold != c.cold || period != c.period {
			t.Errorf("%s takes %v and then %v a step (%v), want %v and %v", c.schedule, cold, period, err, c.cold, c.period)
		}
	}
}

// TestPeriodByHand: two ranks and one microbatch, the second rank's weight gradient
// taking 10. It runs F 1–2, I 2–3, W 3–13 while the first ends at 5. In the next step
// the first's F runs beside that W, so that the second goes on at 13 without a pause.
func TestPeriodByHand(t *testing.T) {
	costs := func(rank int, a Action) float64 {
		if rank == 1 && a.Type == W {
			return 10
		}
		return 1
	}
	table := generate(t, Spec{Schedule: ZBH1, Ranks: 2, Chunks: 1, Microbatches: 1})
	for link, want := range map[float64]float64{0: 12, 3: 12, 20: 45} {
		m := Machine{Costs: costs, Link: func(_, _ int) float64 { return link }}
		if got, err := m.SteadyStateStep(table); err != nil || math.Abs(got-want) > 1e-9 {
			t.Errorf("with messages of %v the period is %v (%v), want %v", link, got, err, want)
		}
	}
}

// TestPeriodBounds: no rank does its work in less than it takes, and a step begun early
// ends no later than one begun cold.
func TestPeriodBounds(t *testing.T) {
	for _, name := range Schedules() {
		s := Spec{Schedule: name, Ranks: 3, Chunks: DefaultChunks(name), Microbatches: 6}
		if name == None {
			s.Ranks = 1
		}
		table := generate(t, s)
		for i, costs := range []Costs{UnitCosts, Slowed(UnitCosts, 1, 1.7), Jittered(UnitCosts, 0.4, 9)} {
			tl := simulated(t, table, costs)
			period, err := Machine{Costs: costs}.SteadyStateStep(table)
			if err != nil || period < slices.Max(tl.Busy)-1e-9 || period > tl.Makespan+1e-9 {
				t.Errorf("%s, costs %d: period %v (%v), the busiest rank works %v and the cold step takes %v", name, i, period, err,
					slices.Max(tl.Busy), tl.Makespan)
			}
		}
	}
}

func TestNoPeriod(t *testing.T) {
	forwards := generate(t, Spec{Ranks: 2, Chunks: 1, Microbatches: 2, ForwardOnly: true})
	whole := generate(t, Spec{Ranks: 2, Chunks: 1, Microbatches: 2})
	long := generate(t, Spec{Ranks: 2, Chunks: 1, Microbatches: MaxPeriodActions/4 + 1})
	for name, err := range map[string]error{
		"a long table":   second(Machine{Costs: UnitCosts}.SteadyStateStep(long)),
		"forwards alone": second(Machine{Costs: UnitCosts}.SteadyStateStep(forwards)),
		"shared cores":   second(Machine{Costs: UnitCosts, Share: SharedCores(1)}.SteadyStateStep(whole)),
	} {
		if !errors.Is(err, ErrPeriod) {
			t.Errorf("%s: error %v, want ErrPeriod", name, err)
		}
	}
	if _, err := (Machine{Costs: func(int, Action) float64 { return -1 }}).SteadyStateStep(whole); !errors.Is(err, ErrCosts) {
		t.Errorf("negative costs: error %v, want ErrCosts", err)
	}
}

func second(_ float64, err error) error { return err }
