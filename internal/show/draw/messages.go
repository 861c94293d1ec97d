package draw

import (
	"cmp"
	"iter"
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
)

// message is an output sent from the end of one action to the start of another.
type message struct {
	kind     scheduler.EdgeKind
	skip     bool // the chunks are not neighbors
	from, to place
}

// place locates an action of a chart.
type place struct{ lane, at int }

// visits are the actions of a chunk that send or receive on one kind of edge, sorted by microbatch. A chunk is on one
// lane.
type visits struct {
	lane int
	at   []int32
}

type end struct {
	kind  scheduler.EdgeKind
	chunk int32
}

// messages lists the messages between chunks, sorted by kind, chunk and microbatch, those between neighbors first. It
// leaves out messages with only one end in the chart, since a measured run may have been interrupted. It needs memory
// for one number per action.
func (c *Chart) messages() iter.Seq[message] {
	ends := make(map[end]*visits)
	for r := range c.Lanes {
		for i, a := range c.Lanes[r].Actions {
			if a.Type == scheduler.W || a.Part > 1 { // the first part stands for all
				continue
			}
			e := end{edge(a.Type), a.Chunk}
			v := ends[e]
			if v == nil {
				v = &visits{lane: r}
				ends[e] = v
			}
			if v.lane == r {
				v.at = append(v.at, int32(i))
			}
		}
	}
	order := make([]end, 0, len(ends))
	for e, v := range ends {
		order = append(order, e)
		row := c.Lanes[v.lane].Actions
		byMicrobatch := func(i, j int32) int { return cmp.Compare(row[i].Microbatch, row[j].Microbatch) }
		if !slices.IsSortedFunc(v.at, byMicrobatch) {
			slices.SortStableFunc(v.at, byMicrobatch)
		}
	}
	slices.SortFunc(order, func(x, y end) int { return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.chunk, y.chunk)) })

	return func(yield func(message) bool) {
		for _, e := range order {
			to := end{e.kind, e.chunk + 1}
			if e.kind == scheduler.BackwardEdge {
				to.chunk = e.chunk - 1
			}
			if ends[to] != nil && !c.match(e.kind, false, ends[e], ends[to], yield) {
				return
			}
		}
		for _, kind := range []scheduler.EdgeKind{scheduler.ForwardEdge, scheduler.BackwardEdge} {
			for _, s := range c.Skips {
				from, to := end{kind, int32(s.From)}, end{kind, int32(s.To)}
				if kind == scheduler.BackwardEdge {
					from, to = to, from
				}
				if ends[from] != nil && ends[to] != nil && !c.match(kind, true, ends[from], ends[to], yield) {
					return
				}
			}
		}
	}
}

// match yields the messages of one edge by matching the microbatches of sender and receiver.
func (c *Chart) match(kind scheduler.EdgeKind, skip bool, from, to *visits, yield func(message) bool) bool {
	senders, receivers := c.Lanes[from.lane].Actions, c.Lanes[to.lane].Actions
	for i, j := 0, 0; i < len(from.at) && j < len(to.at); {
		switch order := cmp.Compare(senders[from.at[i]].Microbatch, receivers[to.at[j]].Microbatch); {
		case order < 0:
			i++
		case order > 0:
			j++
		default:
			sent := c.Lanes[from.lane].lastPart(int(from.at[i]))
			if !yield(message{kind, skip, place{from.lane, sent}, place{to.lane, int(to.at[j])}}) {
				return false
			}
			i++
			j++
		}
	}
	return true
}

// edge returns the kind of edge that carries the output of an F, I or B.
func edge(t scheduler.Type) scheduler.EdgeKind {
	if t == scheduler.F {
		return scheduler.ForwardEdge
	}
	return scheduler.BackwardEdge
}
