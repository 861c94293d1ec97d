package scheduler

import (
	"fmt"
	"slices"
)

// withPairs joins each backward that stands directly before a forward with that forward: see
// Spec.Pairs. A rank then starts the forward at the latest with the backward. So the rows must warm
// up twice as long as 1F1B's, or a rank and the next one would wait for each other's pairs in turn.
func (s Spec) withPairs(t *Table) error {
	for r, row := range t.Ranks {
		t.Ranks[r] = paired(row)
	}
	if !t.HasPairs() {
		return fmt.Errorf("%w: schedule %s has no overlapped pairs on these sizes, and no backward directly before a forward: "+
			"choose %s, %s or %s", ErrSpec, s.Schedule, DualPipeV, OneFOneB, EagerOneFOneB)
	}
	if _, err := Check(t); err != nil {
		return fmt.Errorf("%w: with overlapped pairs schedule %s does not end: choose %s, %s or %s: %w", ErrSpec, s.Schedule, DualPipeV,
			OneFOneB, EagerOneFOneB, err)
	}
	return nil
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
