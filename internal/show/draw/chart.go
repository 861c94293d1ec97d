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
	Units        = "units" // the unit of a simulation's costs
	Milliseconds = "ms"
)

// Chart is one timeline, planned or measured.
type Chart struct {
	Title string
	Unit  string // of all times: Units or Milliseconds
	Lanes []Lane // one for each rank, in order
	// Makespan is the time from 0 to the end of the step; 0: the end of the last action.
	Makespan float64
	// Facts are more lines below the title.
	Facts []Fact
	// Skips are the edges between chunks that are not neighbors, as in scheduler.Table.
	Skips []scheduler.Skip
	// Credits are the credits of the edges, with skips in the order of Skips, for Perfetto; nil: not known.
	Credits *scheduler.Credits
	// Table is the schedule's table; nil: the lanes define it.
	Table *scheduler.Table
	// Step is the measured step; nil: the chart is a plan.
	Step *scheduler.Step
}

// Lane is the timeline of a rank.
type Lane struct {
	Name string // such as "rank 3"
	// Actions are sorted by start. An action with Overlap and the next one are a pair, which runs and is drawn as
	// one. The parts of actions that are cut at their exchanges of tokens are drawn one by one.
	Actions []scheduler.Action
	// Start and End are the times of each action since the beginning of the step. The two actions of a pair have
	// equal times.
	Start, End []float64
	// Exchanges are, in a table that is cut at its exchanges of tokens, those of the rank, sorted by start. They take
	// the rank's link and not the rank. Those of clocks that are not exact may overlap.
	Exchanges []Exchange
	// Host is the host of the rank; "": all ranks ran in one process, or the chart is a plan.
	Host string
	// Gaps are the known idle times with their causes, in order, for Perfetto.
	Gaps []Gap
}

// Exchange is an exchange of tokens with the ranks of their experts.
type Exchange struct {
	Action     scheduler.Action // FD, FC, BD or BC
	Start, End float64
}

// Gap is an idle time of a rank with its cause.
type Gap struct {
	Start, End float64
	Cause      string
}

// Fact is an additional line about a chart.
type Fact struct{ Label, Value string }

// FromTimeline returns the chart of a simulated table. It shares the memory of both. They must belong together: the
// writers of this package refuse a chart whose rows differ in length.
func FromTimeline(t *scheduler.Table, tl *scheduler.Timeline) Chart {
	c := Chart{Title: title(t), Unit: Units, Makespan: tl.Makespan, Lanes: make([]Lane, t.NumRanks()), Skips: t.Skips, Table: t}
	for r, row := range t.Ranks {
		c.Lanes[r] = Lane{Name: fmt.Sprintf("rank %d", r), Actions: row}
		if r < len(tl.Start) && r < len(tl.End) {
			c.Lanes[r].Start, c.Lanes[r].End = tl.Start[r], tl.End[r]
		}
		c.Lanes[r].divide()
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

// localChunk returns the index of a chunk among the chunks of its rank, as in scheduler.Table.
func (c *Chart) localChunk(chunk int32) int { return int(chunk) / len(c.Lanes) }

// actions returns the number of actions of a chart, with its exchanges.
func (c *Chart) actions() int {
	n := 0
	for i := range c.Lanes {
		n += len(c.Lanes[i].Actions) + len(c.Lanes[i].Exchanges)
	}
	return n
}

// check refuses charts that can't be drawn. Actions may overlap without being a pair, since clocks are not exact.
func (c *Chart) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrChart, shorten(c.Title), fmt.Sprintf(format, args...))
	}
	switch {
	case c.Unit != Units && c.Unit != Milliseconds:
		return fail("unknown unit %q, want %q or %q", shorten(c.Unit), Units, Milliseconds)
	case len(c.Lanes) == 0:
		return fail("it has no lanes: it needs one for each rank")
	case !isTime(c.Makespan):
		return fail("makespan %v, want a number from 0 to %v", c.Makespan, float64(maxTime))
	}
	for _, s := range c.Skips {
		if s.From < 0 || s.To < 2 || s.From >= s.To-1 || s.To > math.MaxInt32 {
			return fail("skip %v: the second chunk must be at least two after the first", s)
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
		return fmt.Errorf("%d actions, but %d starts and %d ends: each action needs both",
			len(l.Actions), len(l.Start), len(l.End))
	}
	for i, a := range l.Actions {
		start, end := l.Start[i], l.End[i]
		switch {
		case a.Type < scheduler.F || a.Type > scheduler.B || a.Chunk < 0 || a.Microbatch < 0:
			return fmt.Errorf("action %d: %v is not a valid action", i, a)
		case !isTime(start) || !isTime(end):
			return fmt.Errorf("action %d (%v): from %v to %v, want numbers from 0 to %v", i, a, start, end, float64(maxTime))
		case end < start:
			return fmt.Errorf("action %d (%v): it ends at %v, before it starts at %v", i, a, end, start)
		case i > 0 && start < l.Start[i-1]:
			return fmt.Errorf("action %d (%v): it starts at %v, before the previous action at %v: sort the actions by start",
				i, a, start, l.Start[i-1])
		case a.Overlap && (i+1 == len(l.Actions) || l.Actions[i+1].Overlap):
			return fmt.Errorf("action %d (%v): it overlaps with the next action, which is missing or begins another pair", i, a)
		}
	}
	if err := l.checkExchanges(); err != nil {
		return err
	}
	return l.checkGaps()
}

// checkGaps checks the gaps.
func (l *Lane) checkGaps() error {
	for i, g := range l.Gaps {
		switch {
		case !isTime(g.Start) || !isTime(g.End) || g.End < g.Start:
			return fmt.Errorf("gap %d: from %v to %v, want numbers from 0 to %v", i, g.Start, g.End, float64(maxTime))
		case i > 0 && g.Start < l.Gaps[i-1].Start:
			return fmt.Errorf("gap %d: it starts at %v, before the previous gap at %v", i, g.Start, l.Gaps[i-1].Start)
		}
	}
	return nil
}

func isTime(v float64) bool { return v >= 0 && v <= maxTime && !math.IsNaN(v) }

func checkAll(charts []Chart) error {
	if len(charts) == 0 {
		return fmt.Errorf("%w: there are no charts", ErrChart)
	}
	for i := range charts {
		if err := charts[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// box is an action, a part of one, or a pair, drawn as one box.
type box struct {
	at         int // position of its first action
	actions    []scheduler.Action
	start, end float64
}

// box returns the box of the action at a position.
func (l *Lane) box(i int) box {
	if i > 0 && l.Actions[i-1].Overlap {
		i--
	}
	if !l.Actions[i].Overlap {
		return box{i, l.Actions[i : i+1], l.Start[i], l.End[i]}
	}
	return box{i, l.Actions[i : i+2], l.Start[i], max(l.End[i], l.End[i+1])}
}

// boxes iterates over the boxes of a lane.
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

// shorten cuts a name for an error.
func shorten(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	return s[:maxQuoted] + "…"
}
