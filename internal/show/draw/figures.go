package draw

import "github.com/troupe-ml/troupe/scheduler"

// Figures sums a chart up. The words mean what they mean in scheduler.Timeline and
// scheduler.Report; times are in the chart's unit.
type Figures struct {
	Makespan float64
	// BubbleFraction is the share of all ranks' time, from 0 to the makespan, in
	// which no action runs.
	BubbleFraction float64
	Busy           []float64 // by rank: when at least one action ran
	Idle           []float64 // by rank: waiting between its first and its last action
	// PeakInFlight is, by rank, the most outputs of its chunks that it holds for
	// their backwards.
	PeakInFlight []int
}

// Figures sums the chart up. Its lanes must be as [Lane] says; the writers check that.
func (c *Chart) Figures() Figures {
	ranks := len(c.Lanes)
	f := Figures{Makespan: c.makespan(), Busy: make([]float64, ranks), Idle: make([]float64, ranks), PeakInFlight: make([]int, ranks)}
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

// busy adds up when something ran, so that what overlaps counts once, a pair as what
// it takes.
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

// PeakToInputGradient returns, by rank, the most outputs of its chunks that it holds
// until their input gradient is done: one more with each F, one less after the I, or
// after the B where the two gradients are one action. What a rank holds from there to
// the W is smaller in some systems, and is not counted. A forward-only rank lets go of
// each output at once.
func PeakToInputGradient(t *scheduler.Table) []int {
	peaks := make([]int, t.NumRanks())
	for r, row := range t.Ranks {
		peaks[r] = peak(row, t.ForwardOnly, scheduler.I)
	}
	return peaks
}

// peak counts outputs from their F to the action of the type release, or to the B.
func peak(row []scheduler.Action, forwardOnly bool, release scheduler.Type) int {
	held, most := 0, 0
	for _, a := range row {
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
