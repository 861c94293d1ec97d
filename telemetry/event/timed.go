package event

import (
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// Timed returns the step that ranks have recorded. Each rank is a row of its table, and times count from the start of
// the first action. Actions whose parts were timed are cut into them, as scheduler.Table.Cut does, in the order in which
// the parts ran. As in a simulation, an exchange begins when the one before it has ended. nil: no action was recorded.
// The caller sets the step's number and its other fields.
func Timed(schedule string, trace [][]ActionTime, clocks []Clock) *scheduler.Step {
	var begin time.Time
	for _, row := range trace {
		if len(row) > 0 && (begin.IsZero() || row[0].Start.Before(begin)) {
			begin = row[0].Start
		}
	}
	if begin.IsZero() {
		return nil
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	ranks, s := make([][]scheduler.Action, len(trace)), &scheduler.Step{MS: make([][][2]float64, len(trace))}
	for r, row := range trace {
		for _, a := range apart(row) {
			ranks[r] = append(ranks[r], a.Action)
			s.MS[r] = append(s.MS[r], [2]float64{ms(a.Start.Sub(begin)), ms(a.End.Sub(begin))})
		}
	}
	for _, c := range clocks {
		s.Clocks = append(s.Clocks, scheduler.Clock{Host: c.Process, OffsetMS: ms(c.Ahead), UncertaintyMS: ms(c.Within)})
	}
	s.Table = scheduler.TableOf(schedule, ranks)
	return s
}

// apart returns a row with its actions cut into their parts and exchanges of tokens.
func apart(row []ActionTime) []ActionTime {
	if Size(row) == len(row) {
		return row
	}
	var out []ActionTime
	for i := 0; i < len(row); {
		n := 1
		for row[i+n-1].Action.Overlap && i+n < len(row) {
			n++
		}
		out = append(out, partsInOrder(row[i:i+n])...)
		i += n
	}
	return out
}

// partsInOrder returns the parts of actions that ran as one, by their starts, each followed by its exchange. Actions that are not
// all in parts stay whole.
func partsInOrder(group []ActionTime) []ActionTime {
	exchanges := 0
	for _, a := range group {
		for k, p := range a.Parts {
			if last := k == len(a.Parts)-1; last != (p.Exchange == 0) {
				return group
			}
		}
		if len(a.Parts) == 0 || len(a.Parts) > scheduler.MaxParts {
			return group
		}
		exchanges += len(a.Parts) - 1
	}
	if exchanges == 0 {
		return group
	}
	var out []ActionTime
	var linkFree time.Time
	next := make([]int, len(group))
	for {
		first := -1
		for k, a := range group {
			if next[k] < len(a.Parts) && (first < 0 || a.Parts[next[k]].Start.Before(group[first].Parts[next[first]].Start)) {
				first = k
			}
		}
		if first < 0 {
			out[len(out)-1].Action.Overlap = false
			return out
		}
		p, a := group[first].Parts[next[first]], group[first].Action
		next[first]++
		a.Overlap, a.Part = true, uint16(next[first])
		out = append(out, ActionTime{Action: a, Start: p.Start, End: p.End})
		if p.Exchange != 0 {
			begins := later(p.Sent, linkFree)
			linkFree, a.Type = later(begins, p.Came), p.Exchange // of no length if it came before one that was sent earlier
			out = append(out, ActionTime{Action: a, Start: begins, End: linkFree})
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
