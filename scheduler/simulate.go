package scheduler

import (
	"fmt"
	"math"
)

// Costs returns how long a whole action takes on a rank, or an exchange of tokens on its link, in any
// unit.
type Costs func(rank int, a Action) float64

// UnitCosts gives F, I and W a cost of 1, and B, which is I and W, a cost of 2. Exchanges of tokens
// take no time.
func UnitCosts(_ int, a Action) float64 {
	switch {
	case a.Type == B:
		return 2
	case a.Type.IsExchange():
		return 0
	}
	return 1
}

// Link returns how long a message takes from one rank to another.
type Link func(from, to int) float64

// Timeline holds the time at which each action ran, in the unit of the costs.
type Timeline struct {
	Start, End [][]float64 // indexed by rank and position in its order
	Makespan   float64     // end of the last action
	Busy       []float64   // by rank: the total time of its actions
	Idle       []float64   // by rank: waiting between its first and its last action
	// SteadyStateStep, which Machine.SteadyStateStep computes, is the time from step to step if
	// steps follow each other without a wait; 0: unknown.
	SteadyStateStep float64
	// BubbleFraction is the share of all ranks' time, from 0 to the makespan, in which no action
	// runs. It lies between 0 and 1.
	BubbleFraction float64
}

// Machine describes the ranks that a table is simulated on.
type Machine struct {
	Costs Costs
	// PartCosts returns how long a part of an action takes that is cut at its exchanges of tokens. nil:
	// the parts of an action take equal shares of its cost.
	PartCosts Costs
	Link      Link     // nil: messages take no time
	Credits   *Credits // nil: unlimited
	// Share is for ranks that share a machine. It returns the speed of each of n concurrent actions
	// as a fraction of the speed for which Costs holds. nil: each rank has its own cores.
	Share func(running int) float64
}

// SharedCores returns the Share of a machine on which up to n actions run at full speed at the same
// time, with n = cores. An action that runs alone gains nothing from the idle cores.
func SharedCores(cores float64) func(running int) float64 {
	return func(running int) float64 { return min(1, cores/float64(running)) }
}

// Simulate computes the times of a table. Each rank starts its next action as soon as the previous
// one has ended, its inputs have arrived, and each edge of its output has a credit. A skip's
// messages take the time of the link between its two ranks. The errors are those of Check, and
// ErrCosts.
func (m Machine) Simulate(t *Table) (*Timeline, error) {
	ix, err := newIndex(t)
	if err != nil {
		return nil, err
	}
	p := newPlayer(t, ix)
	if err := p.play(m); err != nil {
		return nil, err
	}
	return p.timeline, nil
}

// Simulate runs a table on a machine whose messages take no time and whose credits are unlimited.
func Simulate(t *Table, costs Costs) (*Timeline, error) {
	return Machine{Costs: costs}.Simulate(t)
}

func (m Machine) checkCredits(t *Table) error {
	if c := m.Credits; c != nil && (len(c.Forward) != t.NumChunks || len(c.Backward) != t.NumChunks) {
		return fmt.Errorf("%w: there are credits for %d forward and %d backward edges, but the table has %d chunks",
			ErrCosts, len(c.Forward), len(c.Backward), t.NumChunks)
	}
	if c, n := m.Credits, len(t.Skips); c != nil && (len(c.SkipForward) != n || len(c.SkipBackward) != n) {
		return fmt.Errorf("%w: there are credits for %d forward and %d backward skip edges, but the table has %d skips",
			ErrCosts, len(c.SkipForward), len(c.SkipBackward), n)
	}
	return nil
}

func (m Machine) cost(rank int, a Action) (float64, error) { return m.costBy(m.Costs, rank, a) }

// partCost returns the cost of a part of an action that has n parts.
func (m Machine) partCost(rank int, a Action, n int) (float64, error) {
	if m.PartCosts != nil {
		return m.costBy(m.PartCosts, rank, a)
	}
	c, err := m.cost(rank, a.whole())
	return share(c, int(a.Part), n), err
}

// share returns the share of part k, from 1, of n parts of a cost. The shares are equal, except for
// rounding, and their sum is the cost: with whole costs all times are exact, and a table in parts has
// the credits of the whole one.
func share(cost float64, k, n int) float64 {
	_, exponent := math.Frexp(cost)
	unit := math.Ldexp(1, exponent-36)
	upTo := func(k int) float64 {
		if at := cost * float64(k) / float64(n); k < n && unit > 0 {
			return math.Floor(at/unit) * unit
		}
		return cost
	}
	return upTo(k) - upTo(k-1)
}

func (m Machine) costBy(costs Costs, rank int, a Action) (float64, error) {
	c := costs(rank, a)
	if !(c >= 0) || math.IsInf(c, 1) {
		return 0, fmt.Errorf("%w: %v on rank %d costs %v: want a finite number of at least 0", ErrCosts, a, rank, c)
	}
	return c, nil
}

func newTimeline(ranks int) *Timeline {
	return &Timeline{Start: make([][]float64, ranks), End: make([][]float64, ranks), Busy: make([]float64, ranks),
		Idle: make([]float64, ranks)}
}

// Summarise computes the makespan, the idle times and the bubble from Start, End and Busy. It is
// for a measured timeline, where the ranks' clocks may differ.
func (tl *Timeline) Summarise() {
	tl.Makespan = 0
	busy := 0.0
	for r, end := range tl.End {
		if len(end) == 0 {
			continue
		}
		last := end[len(end)-1]
		tl.Makespan = max(tl.Makespan, last)
		tl.Idle[r] = last - tl.Start[r][0] - tl.Busy[r]
		busy += tl.Busy[r]
	}
	tl.BubbleFraction = 0
	if tl.Makespan > 0 {
		all := tl.Makespan * float64(len(tl.End))
		tl.BubbleFraction = max(0, (all-busy)/all)
	}
}
