package draw

import "github.com/troupe-ml/troupe/scheduler"

// Figures holds the totals of a chart, as defined by scheduler.Timeline and scheduler.Report. Times are in the
// chart's unit.
type Figures struct {
	Makespan float64
	// BubbleFraction is the share of all ranks' time, from 0 to the makespan, in which no action runs.
	BubbleFraction float64
	Busy           []float64 // by rank: time in which at least one action ran
	Idle           []float64 // by rank: idle time between its first and last action
	// Exchange is how long tokens traveled to their experts and back, on the links of all ranks together, and Hidden how long of that
	// the ranks computed meanwhile. 0: the chart has no exchanges.
	Exchange, Hidden float64
	// PeakInFlight is, by rank, the largest number of outputs that it holds for their backward passes.
	PeakInFlight []int
}

// Figures returns the totals of the chart. Its lanes must be valid, which the writers check.
func (c *Chart) Figures() Figures {
	ranks := len(c.Lanes)
	f := Figures{Makespan: c.makespan(), Busy: make([]float64, ranks), Idle: make([]float64, ranks), PeakInFlight: make([]int, ranks)}
	f.Exchange, f.Hidden = c.exchanged()
	forwardOnly := c.forwardOnly()
	busy := 0.0
	for r := range c.Lanes {
		l := &c.Lanes[r]
		f.Busy[r], f.Idle[r] = l.busy()
		f.PeakInFlight[r] = peak(l.Actions, forwardOnly, scheduler.W)
		busy += f.Busy[r]
	}
	if all := f.Makespan * float64(ranks); all > 0 {
		f.BubbleFraction = (all - busy) / all
	}
	return f
}

func (c *Chart) makespan() float64 {
	m := c.Makespan
	for r := range c.Lanes {
		for _, end := range c.Lanes[r].End {
			m = max(m, end)
		}
	}
	return m
}

func (c *Chart) forwardOnly() bool {
	for r := range c.Lanes {
		for _, a := range c.Lanes[r].Actions {
			if a.Type != scheduler.F {
				return false
			}
		}
	}
	return true
}

// busy adds up the time in which actions ran; overlapping times count once.
func (l *Lane) busy() (busy, idle float64) {
	if len(l.Actions) == 0 {
		return 0, 0
	}
	reach := l.Start[0]
	for i, start := range l.Start {
		if l.End[i] > reach {
			busy += l.End[i] - max(start, reach)
			reach = l.End[i]
		}
	}
	return busy, max(0, reach-l.Start[0]-busy)
}

// PeakToInputGradient returns, by rank, the largest number of outputs that it holds until their input gradient is
// done: one more with each F, one less after the I, or after the B if the two gradients are one action. It does not
// count what a rank holds from the I to the W, which is smaller in some systems. A forward-only rank releases each
// output at once.
func PeakToInputGradient(t *scheduler.Table) []int {
	peaks := make([]int, t.NumRanks())
	for r, row := range t.Ranks {
		peaks[r] = peak(row, t.ForwardOnly, scheduler.I)
	}
	return peaks
}

// peak returns the largest number of outputs held from their F to the action of type release, or to the B.
func peak(row []scheduler.Action, forwardOnly bool, release scheduler.Type) int {
	held, most := 0, 0
	for _, a := range row {
		if a.Part > 1 { // the first part stands for all: they run as one
			continue
		}
		switch a.Type {
		case scheduler.F:
			held++
			most = max(most, held)
			if forwardOnly {
				held--
			}
		case scheduler.B, release:
			held--
		}
	}
	return most
}
