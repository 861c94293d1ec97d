package draw

import (
	"fmt"
	"iter"
	"math"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/scheduler"
)

// The units that a chart's times may have.
const (
	Units        = "units" // what a simulation's costs are in
	Milliseconds = "ms"
)

// Chart is one timeline, planned or measured.
type Chart struct {
	Title string
	Unit  string // of all times: Units or Milliseconds
	Lanes []Lane // one for each rank, in the order of ranks
	// Makespan is the time from 0 to the end of the step. 0 means: to the end of
	// the last action.
	Makespan float64
	// Facts are further lines to show beneath the title.
	Facts []Fact
	// Skips are the edges between chunks that are no neighbours, as in scheduler.Table.
	Skips []scheduler.Skip
	// Credits are those of the edges, with skips in the order of Skips; nil: not known.
	// Perfetto names them.
	Credits *scheduler.Credits
	// Table is the order of all ranks; nil: it is what the lanes say.
	Table *scheduler.Table
	// Step is the step that was measured; nil: the chart is a plan.
	Step *scheduler.Step
}

// Lane is what one rank did.
type Lane struct {
	Name string // such as "rank 3"
	// Actions stand in the order of their starts. One with Overlap and the next are a
	// pair that ran as one, and are drawn as one.
	Actions []scheduler.Action
	// Start and End are the times of each action, counted from the beginning of the
	// step. Those of a pair's two actions are equal.
	Start, End []float64
	// Host is where the rank ran; "": all ranks of the chart ran in one place, or as planned.
	Host string
	// Gaps are times without an action and why, in order, as far as they are known. Perfetto
	// shows them.
	Gaps []Gap
}

// Gap is a time in which a rank did nothing, and why.
type Gap struct {
	Start, End float64
	Cause      string
}

// Fact is something that a chart says about itself.
type Fact struct{ Label, Value string }

// FromTimeline makes the chart of a simulated table. It shares the memory of both, which
// must belong together: the writers of this package refuse a chart whose rows differ in
// length.
func FromTimeline(t *scheduler.Table, tl *scheduler.Timeline) Chart {
	c := Chart{Title: title(t), Unit: Units, Makespan: tl.Makespan, Lanes: make([]Lane, t.NumRanks()), Skips: t.Skips, Table: t}
	for r, row := range t.Ranks {
		c.Lanes[r] = Lane{Name: fmt.Sprintf("rank %d", r), Actions: row}
		if r < len(tl.Start) && r < len(tl.End) {
			c.Lanes[r].Start, c.Lanes[r].End = tl.Start[r], tl.End[r]
		}
	}
	return c
}

func title(t *scheduler.Table) string {
	name := t.Schedule
	if name == "" {
		name = "table"
	}
	text := fmt.Sprintf("%s, %s", name, words.Plural(t.NumRanks(), "rank"))
	if t.NumChunks != t.NumRanks() {
		text += ", " + words.Plural(t.NumChunks, "chunk")
	}
	if n := len(t.Skips); n > 0 {
		text += ", " + words.Plural(n, "skip")
	}
	return text + ", " + words.Plural(t.Microbatches, "microbatch")
}

// localChunk returns a chunk's place among those of its rank, as scheduler.Table does.
func (c *Chart) localChunk(chunk int32) int { return int(chunk) / len(c.Lanes) }

// actions returns how many actions a chart has.
func (c *Chart) actions() int {
	n := 0
	for i := range c.Lanes {
		n += len(c.Lanes[i].Actions)
	}
	return n
}

// check refuses what can't be drawn. Actions that overlap without being a pair are
// legal: clocks are not that exact.
func (c *Chart) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrChart, shorten(c.Title), fmt.Sprintf(format, args...))
	}
	switch {
	case c.Unit != Units && c.Unit != Milliseconds:
		return fail("unknown unit %q, want %q or %q", shorten(c.Unit), Units, Milliseconds)
	case len(c.Lanes) == 0:
		return fail("it has no lanes, want one for each rank")
	case !isTime(c.Makespan):
		return fail("makespan %v, want a number from 0 to %v", c.Makespan, float64(maxTime))
	}
	for _, s := range c.Skips {
		if s.From < 0 || s.To < 2 || s.From >= s.To-1 || s.To > math.MaxInt32 {
			return fail("skip %v: want a chunk, and one behind the next", s)
		}
	}
	for r := range c.Lanes {
		if err := c.Lanes[r].check(); err != nil {
			return fail("lane %d (%s), %v", r, shorten(c.Lanes[r].Name), err)
		}
	}
	return nil
}

func (l *Lane) check() error {
	if len(l.Start) != len(l.Actions) || len(l.End) != len(l.Actions) {
		return fmt.Errorf("%d actions, but %d starts and %d ends: each action needs one of both",
			len(l.Actions), len(l.Start), len(l.End))
	}
	for i, a := range l.Actions {
		start, end := l.Start[i], l.End[i]
		switch {
		case a.Type < scheduler.F || a.Type > scheduler.B || a.Chunk < 0 || a.Microbatch < 0:
			return fmt.Errorf("action %d: %v is no action", i, a)
		case !isTime(start) || !isTime(end):
			return fmt.Errorf("action %d (%v): from %v to %v, want numbers from 0 to %v", i, a, start, end, float64(maxTime))
		case end < start:
			return fmt.Errorf("action %d (%v): it ends at %v, before it starts at %v", i, a, end, start)
		case i > 0 && start < l.Start[i-1]:
			return fmt.Errorf("action %d (%v): it starts at %v, before the one before it at %v: sort the lane by its starts",
				i, a, start, l.Start[i-1])
		case a.Overlap && (i+1 == len(l.Actions) || l.Actions[i+1].Overlap):
			return fmt.Errorf("action %d (%v): it is to overlap with the next action, which is missing or the first of another pair", i, a)
		}
	}
	return l.checkGaps()
}

// checkGaps looks at the gaps as check does at the actions.
func (l *Lane) checkGaps() error {
	for i, g := range l.Gaps {
		switch {
		case !isTime(g.Start) || !isTime(g.End) || g.End < g.Start:
			return fmt.Errorf("gap %d: from %v to %v, want numbers from 0 to %v", i, g.Start, g.End, float64(maxTime))
		case i > 0 && g.Start < l.Gaps[i-1].Start:
			return fmt.Errorf("gap %d: it starts at %v, before the one before it at %v", i, g.Start, l.Gaps[i-1].Start)
		}
	}
	return nil
}

func isTime(v float64) bool { return v >= 0 && v <= maxTime && !math.IsNaN(v) }

func checkAll(charts []Chart) error {
	if len(charts) == 0 {
		return fmt.Errorf("%w: there is none", ErrChart)
	}
	for i := range charts {
		if err := charts[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// box is what is drawn as one: an action, or a pair.
type box struct {
	at         int // position of its first action
	actions    []scheduler.Action
	start, end float64
}

// box returns the one that an action at a position belongs to.
func (l *Lane) box(i int) box {
	if i > 0 && l.Actions[i-1].Overlap {
		i--
	}
	if !l.Actions[i].Overlap {
		return box{i, l.Actions[i : i+1], l.Start[i], l.End[i]}
	}
	return box{i, l.Actions[i : i+2], l.Start[i], max(l.End[i], l.End[i+1])}
}

// boxes goes through a lane.
func (l *Lane) boxes() iter.Seq[box] {
	return func(yield func(box) bool) {
		for i := 0; i < len(l.Actions); {
			b := l.box(i)
			if !yield(b) {
				return
			}
			i += len(b.actions)
		}
	}
}

// shorten cuts a name to what an error may repeat of it.
func shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return s[:maxQuoted] + "…"
}
