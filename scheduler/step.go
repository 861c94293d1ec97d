package scheduler

import (
	"fmt"
	"math"
)

// Step is one step with the times of its actions, measured or simulated. Drawings of a step are
// made from it.
type Step struct {
	Number int // step of the run; 0: simulated
	Table  *Table
	// MS holds the start and the end of each action, indexed by rank and position in the table's
	// order, in milliseconds since the start of the step. For a simulated step the unit is that of
	// its costs. The two actions of an overlapped pair have the same times. A rank whose last
	// actions have not ended has fewer entries. Times from other hosts may be off by the error of
	// their clocks.
	MS [][][2]float64
	// StepMS is the time at which the step had ended and its update was decided, in the same unit;
	// 0: it ended with its last action.
	StepMS  float64
	Credits *Credits // nil: unknown, and no wait is for a credit
	Clocks  []Clock  // by rank; nil: all ranks ran in one process
}

// Clock is the correction of a rank's times if the rank ran in another process. OffsetMS, by which
// that process's clock was ahead of the coordinator's, was subtracted. The remaining error is at
// most UncertaintyMS.
type Clock struct {
	Host          string  `json:"host"` // the worker's name; "": the rank ran in the coordinator's process
	OffsetMS      float64 `json:"offset_ms"`
	UncertaintyMS float64 `json:"uncertainty_ms"` // 0: the offset was unknown
}

// StepOf returns the step of a simulated timeline.
func StepOf(t *Table, tl *Timeline) *Step {
	s := &Step{Table: t, MS: make([][][2]float64, len(tl.Start))}
	for r, row := range tl.Start {
		s.MS[r] = make([][2]float64, len(row))
		for i, start := range row {
			s.MS[r][i] = [2]float64{start, tl.End[r][i]}
		}
	}
	return s
}

// Check refuses anything but a whole step: with ErrTable for wrong sizes and actions outside of
// them, with ErrTimes for impossible times. It does not examine the order of actions, as Check of a
// table does.
func (s *Step) Check() error {
	if err := s.check(); err != nil {
		return err
	}
	for r, row := range s.Table.Ranks {
		if len(s.MS[r]) != len(row) {
			return fmt.Errorf("%w: there are %d times for the %d actions of rank %d", ErrTimes, len(s.MS[r]), len(row), r)
		}
	}
	if n := len(s.Clocks); n != 0 && n != len(s.MS) {
		return fmt.Errorf("%w: there are clocks of %d ranks for a table of %d", ErrTimes, n, len(s.MS))
	}
	return nil
}

// check accepts unfinished steps, too.
func (s *Step) check() error {
	t := s.Table
	if err := t.checkCounts(); err != nil {
		return err
	}
	if len(s.MS) != len(t.Ranks) {
		return fmt.Errorf("%w: there are times of %d ranks for a table of %d", ErrTimes, len(s.MS), len(t.Ranks))
	}
	// A step that has just started has few actions yet.
	if visits := int64(t.NumChunks) * int64(t.Microbatches); visits > max(int64(t.numActions()), fewVisits) {
		return fmt.Errorf("%w: %d microbatches on %d chunks are too many for %d actions", ErrTable, t.Microbatches, t.NumChunks, t.numActions())
	}
	if !(s.StepMS >= 0) || math.IsInf(s.StepMS, 0) {
		return fmt.Errorf("%w: the step ends at %v ms", ErrTimes, s.StepMS)
	}
	for r, row := range t.Ranks {
		if len(s.MS[r]) > len(row) {
			return fmt.Errorf("%w: there are %d times for the %d actions of rank %d", ErrTimes, len(s.MS[r]), len(row), r)
		}
		for i, a := range row {
			if a.Type < F || a.Type > BC || a.Chunk < 0 || int(a.Chunk) >= t.NumChunks || a.Microbatch < 0 || int(a.Microbatch) >= t.Microbatches {
				return fmt.Errorf("%w: %v on rank %d lies outside the table's %d chunks and %d microbatches", ErrTable, a, r, t.NumChunks,
					t.Microbatches)
			}
			if a.Overlap && (i+1 == len(row) || row[i+1].Overlap && a.Part == 0) {
				return fmt.Errorf("%w: %v on rank %d overlaps with the next action, but the row ends there", ErrTable, a, r)
			}
		}
		for i, at := range s.MS[r] {
			if !(at[1] >= at[0]) || math.IsInf(at[0], 0) || math.IsInf(at[1], 0) {
				return fmt.Errorf("%w: %v on rank %d runs from %v to %v ms", ErrTimes, row[i], r, at[0], at[1])
			}
		}
	}
	return nil
}

// Took returns an action's time in milliseconds. The time of a pair is divided between its two
// actions in proportion to their unit costs; parts and exchanges have their own times.
func (s *Step) Took(rank, position int) float64 {
	row, first := s.Table.Ranks[rank], position
	if row[position].Part > 0 {
		return s.MS[rank][position][1] - s.MS[rank][position][0]
	}
	if first > 0 && row[first-1].Overlap {
		first--
	}
	all := 0.0
	for _, a := range row[first : first+Width(row, first)] {
		all += UnitCosts(rank, a)
	}
	at := s.MS[rank][first]
	return (at[1] - at[0]) * UnitCosts(rank, row[position]) / all
}

// Timeline returns a whole step in the form of a simulation's result.
func (s *Step) Timeline() *Timeline {
	tl := newTimeline(len(s.MS))
	for r, row := range s.Table.Ranks {
		for i := 0; i < len(row); {
			at, width := s.MS[r][i], Width(row, i)
			for k := range width {
				if row[i].Part > 0 {
					if at = s.MS[r][i+k]; !row[i+k].Type.IsExchange() {
						tl.Busy[r] += at[1] - at[0]
					}
				}
				tl.Start[r], tl.End[r] = append(tl.Start[r], at[0]), append(tl.End[r], at[1])
			}
			if row[i].Part == 0 {
				tl.Busy[r] += at[1] - at[0]
			}
			i += width
		}
	}
	tl.Summarise()
	return tl
}

// Means returns costs for simulations: the mean time of each type of action, and of each type of
// exchange, on each chunk of a whole step.
func (s *Step) Means() Costs {
	at := func(a Action) int { return int(a.Chunk)*int(BC+1) + int(a.Type) }
	ms, count := make([]float64, s.Table.NumChunks*int(BC+1)), make([]float64, s.Table.NumChunks*int(BC+1))
	for r, row := range s.Table.Ranks {
		for i, a := range row {
			ms[at(a)] += s.Took(r, i)
			if a.Part <= 1 || a.Type.IsExchange() { // the parts of an action are one
				count[at(a)]++
			}
		}
	}
	return func(_ int, a Action) float64 { return ms[at(a)] / max(1, count[at(a)]) }
}

// Plan simulates the table of a whole step with its mean times. Differences from the step are due
// to waits and chance.
func (s *Step) Plan() (*Timeline, error) { return Simulate(s.Table, s.Means()) }
