package actors

import (
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// timeParts times the parts of an action until the returned function is called, if the order is timed. The calls that note the
// time are the host's, and a weight gradient alone has no parts in a table.
func (a *stageActor) timeParts(l *tensorops.List, p *pass) (end func()) {
	timer, ok := a.stage.(PartTimer)
	if !ok || a.log == nil || p.Type == scheduler.W || !a.edges.memory.addressable {
		return func() {}
	}
	if p.times = timer.BeginParts(l, p.Type); p.times == nil {
		return func() {}
	}
	return func() { timer.EndParts(l) }
}

// parts returns the times of the parts of each action of a completed list. An action has none if no action of the list exchanged
// tokens.
func (f *submission) parts(finished time.Time) [][]scheduler.PartTime {
	all := make([][]scheduler.PartTime, len(f.passes))
	exchanged := false
	for i := range f.passes {
		if all[i] = f.passes[i].times.Parts(); len(all[i]) == 0 {
			return make([][]scheduler.PartTime, len(f.passes))
		}
		exchanged = exchanged || len(all[i]) > 1
	}
	if !exchanged {
		clear(all)
		return all
	}
	fill(all, f.began, finished)
	return all
}

// fill lets the parts of actions that ran as one fill the time of their list: the first part begins with it, and the last ends with it.
func fill(all [][]scheduler.PartTime, began, finished time.Time) {
	first, last := &all[0][0], &all[0][len(all[0])-1]
	for _, parts := range all[1:] { // in the order of a table, either action may begin
		if p := &parts[0]; p.Start.Before(first.Start) {
			first = p
		}
		if p := &parts[len(parts)-1]; p.End.After(last.End) {
			last = p
		}
	}
	first.Start, last.End = began, finished
}
