package scheduler

import (
	"fmt"
	"slices"
)

// withPairs joins each backward that stands directly before a forward with that forward: see
// Spec.Pairs. A rank then starts the forward at the latest with the backward. So the rows must warm
// up twice as long as 1F1B's, or a rank and the next one would wait for each other's pairs in turn.
func (s Spec) withPairs(t *Table) error {
	switch s.Schedule {
	case None, OneFOneB, EagerOneFOneB, DualPipeV:
	default: // zero-bubble schedules put weight gradients between the two, and interleaved would hold more than is documented
		return s.noPairs()
	}
	for r, row := range t.Ranks {
		t.Ranks[r] = paired(row)
	}
	if !t.HasPairs() {
		return fmt.Errorf("%w: with %d microbatches, no backward of schedule %s comes before a forward, so none can be overlapped: "+
			"use more microbatches", ErrSpec, s.Microbatches, s.Schedule)
	}
	if _, err := Check(t); err != nil {
		return fmt.Errorf("%w: %w", s.noPairs(), err)
	}
	return nil
}

func (s Spec) noPairs() error {
	return fmt.Errorf("%w: schedule %s has no overlapped pairs: choose %s, %s, %s or %s", ErrSpec, s.Schedule, DualPipeV, OneFOneB,
		EagerOneFOneB, None)
}

func paired(row []Action) []Action {
	out := slices.Clip(row[:0:0])
	for i := 0; i < len(row); {
		n := Width(row, i)
		if n == 1 && i+1 < len(row) && Width(row, i+1) == 1 {
			if b, f := row[i], row[i+1]; (b.Type == B || b.Type == I) && f.Type == F && (b.Chunk != f.Chunk || b.Microbatch != f.Microbatch) {
				f.Overlap = true
				out = append(out, f, b)
				i += 2
				continue
			}
		}
		out = append(out, row[i:i+n]...)
		i += n
	}
	return out
}

// HasParts reports whether actions of the table are cut into parts.
func (t *Table) HasParts() bool {
	return slices.ContainsFunc(t.Ranks, func(row []Action) bool {
		return slices.ContainsFunc(row, func(a Action) bool { return a.Part > 0 })
	})
}

// HasPairs reports whether a rank runs a forward and a backward as one.
func (t *Table) HasPairs() bool {
	return slices.ContainsFunc(t.Ranks, func(row []Action) bool {
		return slices.ContainsFunc(row, func(a Action) bool { return a.Overlap })
	})
}
