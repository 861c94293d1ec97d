package scheduler

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// own holds the schedules that the program has registered.
var own *registry.Set[kind]

// Generator makes the tables of a program's own schedule.
type Generator struct {
	// Placement says which rank holds which chunk.
	Placement Placement
	// ChunksMin and ChunksMax limit the number of chunks on each rank. 0 means 1 for ChunksMin and
	// ChunksMin for ChunksMax. With placement V a ChunksMin of 0 means 2. With U both are 2.
	ChunksMin, ChunksMax int
	// Rows makes the order of every rank. The spec's defaults are filled in, and Ranks, Chunks and
	// Microbatches fit one another. If the schedule can't serve the spec, Rows returns an error
	// that says what to choose instead. The same spec must always give the same rows, in every
	// process. If ForwardOnly is set, only the forwards of the rows are used.
	Rows func(s Spec) ([][]Action, error)
}

// Register adds a schedule, which then works like the built-in ones: Generate makes it, Schedules
// lists it, a config and `engine plan --schedule` may name it, Auto and recommendations try it.
// Before a table is used, Check must accept it, and its passes must run in ascending microbatch
// order; see OutOfOrder.
//
// Call Register at the start of the program, in an init function or at the top of main, before
// anything else is called. All processes of a cluster must register the same schedules. Register
// panics if the name is not a plain lower-case word of at most 64 bytes or is taken, or if the
// generator has no Rows or impossible chunks.
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
		panic(fmt.Sprintf("cannot register schedule %.100q: its Rows is nil", name))
	case g.Placement > U:
		panic(fmt.Sprintf("cannot register schedule %.100q: unknown placement %v", name, g.Placement))
	case least < fewest || most < least || most > anyChunks || g.Placement == U && most != 2:
		panic(fmt.Sprintf("cannot register schedule %.100q: %d to %d chunks on each rank are impossible with placement %v", name, least, most,
			g.Placement))
	}
	own.Add(name, kind{name, g.Placement, [2]int{least, most}, false, g.proved})
}

// proved returns rows that were made and checked. Generate's own rows are checked where they are
// used. A program's rows may be wrong in ways that the code in between does not expect.
func (g Generator) proved(s Spec) ([][]Action, error) {
	made, err := g.Rows(s)
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %s: %w", ErrSpec, s.Schedule, err)
	}
	if len(made) != s.Ranks {
		return nil, fmt.Errorf("%w: schedule %s, which this program registered, made %s for %s", ErrTable, s.Schedule,
			words.Plural(len(made), "row"), words.Plural(s.Ranks, "rank"))
	}
	rows := make([][]Action, len(made)) // the caller may change them
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
		return nil, fmt.Errorf("schedule %s, which this program registered: %w", s.Schedule, err)
	}
	if report.OutOfOrder.Any() {
		return nil,
			fmt.Errorf("schedule %s, which this program registered: %w: some %v do not run in ascending microbatch order, so sums would round differently than under every other schedule. Only a table in a file may have such an order",
				s.Schedule, ErrOrder, report.OutOfOrder)
	}
	return rows, nil
}
