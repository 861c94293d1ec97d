package scheduler

import (
	"fmt"
	"math"
)

// Costs says how long an action takes on a rank, in any unit.
type Costs func(rank int, a Action) float64

// UnitCosts gives F, I and W a cost of 1, and B, which is I and W, of 2.
func UnitCosts(_ int, a Action) float64 {
	if a.Type == B {
		return 2
	}
	return 1
}

// Link says how long a message from a rank to another is under way.
type Link func(from, to int) float64

// Timeline says when each action ran.
type Timeline struct {
	Start, End [][]float64 // by rank and position in its order
	Makespan   float64     // end of the last action
	Busy       []float64   // by rank: the sum of its actions
	Idle       []float64   // by rank: waiting between its first and its last action
	// SteadyStateStep, where Machine.SteadyStateStep was asked for it, is the time from step to step where
	// steps follow each other without a wait; 0: not known.
	SteadyStateStep float64
	// BubbleFraction is the share of all ranks' time, from 0 to the makespan, in
	// which no action runs.
	BubbleFraction float64
}

// Machine is what a table is played on.
type Machine struct {
	Costs   Costs
	Link    Link     // nil: messages take no time
	Credits *Credits // nil: unbounded
	// Share is, where ranks share a machine, the speed of each of n actions that
	// run at a time, as a share of that which Costs go by. nil: each rank has its own.
	Share func(running int) float64
}

// SharedCores is the Share of a machine that n actions can use at a time at their
// full speed; one that runs alone gains nothing from the others' cores.
func SharedCores(cores float64) func(running int) float64 {
	return func(running int) float64 { return min(1, cores/float64(running)) }
}

// Simulate plays a table: each rank starts its next action as soon as the one
// before has ended, its inputs are there, and a credit of each edge that its output
// leaves by. A skip's messages take what the link between its two ranks takes.
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

// Simulate plays a table with messages that take no time and unbounded credits.
func Simulate(t *Table, costs Costs) (*Timeline, error) {
	return Machine{Costs: costs}.Simulate(t)
}

func (m Machine) checkCredits(t *Table) error {
	if c := m.Credits; c != nil && (len(c.Forward) != t.NumChunks || len(c.Backward) != t.NumChunks) {
		return fmt.Errorf("%w: credits for %d forward and %d backward edges, but there are %d chunks",
			ErrCosts, len(c.Forward), len(c.Backward), t.NumChunks)
	}
	if c, n := m.Credits, len(t.Skips); c != nil && (len(c.SkipForward) != n || len(c.SkipBackward) != n) {
		return fmt.Errorf("%w: credits for %d forward and %d backward skip edges, but the table has %d",
			ErrCosts, len(c.SkipForward), len(c.SkipBackward), n)
	}
	return nil
}

func (m Machine) cost(rank int, a Action) (float64, error) {
	c := m.Costs(rank, a)
	if !(c >= 0) || math.IsInf(c, 1) {
		return 0, fmt.Errorf("%w: %v on rank %d costs %v, want a finite number from 0", ErrCosts, a, rank, c)
	}
	return c, nil
}

func newTimeline(ranks int) *Timeline {
	return &Timeline{Start: make([][]float64, ranks), End: make([][]float64, ranks), Busy: make([]float64, ranks),
		Idle: make([]float64, ranks)}
}

// Summarise sets the makespan, the idle times and the bubble from Start, End and Busy,
// for a timeline that was measured, where ranks' clocks may differ.
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
