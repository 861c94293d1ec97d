package scheduler

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// own are the schedules that the program has registered.
var own *registry.Set[kind]

// Generator makes a program's own schedule.
type Generator struct {
	// Placement says which rank holds which chunk.
	Placement Placement
	// ChunksMin and ChunksMax are the least and the most chunks on each rank. 0 means 1 and
	// ChunksMin; with the placement V 2 and ChunksMin, with U, which has no choice, 2.
	ChunksMin, ChunksMax int
	// Rows makes the order of every rank. The spec's defaults are filled in, and Ranks,
	// Chunks and Microbatches fit one another; what the schedule can't do with them is an
	// error that says what to choose instead. The same spec must always give the same rows,
	// in every process. Where ForwardOnly is set, only forwards are kept of them.
	Rows func(s Spec) ([][]Action, error)
}

// Register adds a schedule, which from then on is one like those of this package: Generate
// makes it, Schedules lists it, a configuration and `engine plan --schedule` may name it,
// Auto and recommendations try it. Each table that the generator makes is proved before it
// is used, by Check, and to run all passes of OutOfOrder in ascending microbatch order.
//
// It is for the beginning of a program, an init function or main, before anything else is
// called: all processes of a cluster must have registered the same. Register panics if the
// name is not a plain lower-case word of at most 64 bytes, or is taken, and if the generator
// has no Rows or impossible chunks.
func Register(name string, g Generator) {
	least, most := g.ChunksMin, g.ChunksMax
	fewest := 1
	if g.Placement == V || g.Placement == U {
		fewest = 2
	}
	if least == 0 {
		least = fewest
	}
	if most == 0 {
		most = least
	}
	switch {
	case g.Rows == nil:
		panic(fmt.Sprintf("schedule %.100q can't be registered: its Rows is nil", name))
	case g.Placement > U:
		panic(fmt.Sprintf("schedule %.100q can't be registered: unknown placement %v", name, g.Placement))
	case least < fewest || most < least || most > anyChunks || g.Placement == U && most != 2:
		panic(fmt.Sprintf("schedule %.100q can't be registered: %d to %d chunks on each rank are impossible in placement %v", name, least, most,
			g.Placement))
	}
	own.Add(name, kind{name, g.Placement, [2]int{least, most}, false, g.proved})
}

// proved are rows that were made and checked. Generate's own are checked where they are
// used; these may be wrong in ways that what comes in between does not expect.
func (g Generator) proved(s Spec) ([][]Action, error) {
	made, err := g.Rows(s)
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %s: %w", ErrSpec, s.Schedule, err)
	}
	if len(made) != s.Ranks {
		return nil, fmt.Errorf("%w: schedule %s, which this program has registered, made %s for %s", ErrTable, s.Schedule,
			words.Plural(len(made), "row"), words.Plural(s.Ranks, "rank"))
	}
	rows := make([][]Action, len(made)) // which are the caller's to change
	for r, row := range made {
		rows[r] = slices.Clone(row)
		if s.ForwardOnly {
			rows[r] = slices.DeleteFunc(rows[r], func(a Action) bool { return a.Type != F })
			for i := range rows[r] {
				rows[r][i].Overlap = false
			}
		}
	}
	chunks, err := g.Placement.Chunks(s.Ranks, s.Chunks)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	report, err := Check(&Table{Schedule: s.Schedule, Placement: g.Placement, NumChunks: chunks, Microbatches: s.Microbatches,
		ForwardOnly: s.ForwardOnly, Ranks: rows})
	if err != nil {
		return nil, fmt.Errorf("schedule %s, which this program has registered: %w", s.Schedule, err)
	}
	if report.OutOfOrder.Any() {
		return nil,
			fmt.Errorf("schedule %s, which this program has registered: %w: some chunk's %v don't come in ascending microbatch order, so that sums would round differently from every other schedule's; only a table in a file may do that",
				s.Schedule, ErrOrder, report.OutOfOrder)
	}
	return rows, nil
}
