package actors

import (
	"slices"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// way is an edge as a rank of one of its two chunks sees it.
type way struct {
	chunk int32   // the other one
	skip  int32   // 0: a neighbour; else 1 and its place in the table's skips
	ranks []int32 // that have it, and that this rank sends to or takes from
}

// ways are those of a chunk's inputs and outputs, by EdgeKind.
type ways struct {
	// ins says where each tensor comes from that an action takes, outs where each goes to
	// that it makes.
	ins, outs [2][]stages.Port
	from, to  [2][]way // each of those chunks once
	// How each of those tensors crosses to this rank, and from it.
	takes, sends [2][]crossing
}

// waysOf are those of a chunk as a rank that has it sees them, by the run's routes.
func (s *Spec) waysOf(t *scheduler.Table, rank, chunk int) *ways {
	r := s.route(chunk)
	w := &ways{ins: [2][]stages.Port{r.Ins, r.GradOuts}, outs: [2][]stages.Port{r.Outs, r.GradIns}}
	for kind := range w.ins {
		w.takes[kind], w.from[kind] = s.waysTo(t, rank, chunk, w.ins[kind], s.takes)
		w.sends[kind], w.to[kind] = s.waysTo(t, rank, chunk, w.outs[kind], s.sends)
	}
	return w
}

// waysTo are those to the chunks of some ports, of which of says how a tensor crosses between a rank and a stage.
func (s *Spec) waysTo(t *scheduler.Table, rank, chunk int, ports []stages.Port, of func(rank, stage int) crossing) (crossings []crossing, all []way) {
	for _, p := range ports {
		c := of(rank, t.RankOf(p.Chunk))
		crossings = append(crossings, c)
		w := way{chunk: int32(p.Chunk), ranks: c.ranks()}
		if s := (scheduler.Skip{From: min(chunk, p.Chunk), To: max(chunk, p.Chunk)}); s.To-s.From > 1 {
			w.skip = int32(slices.Index(t.Skips, s)) + 1
		}
		if !slices.ContainsFunc(all, func(o way) bool { return o.chunk == w.chunk }) {
			all = append(all, w)
		}
	}
	return crossings, all
}

// route is a chunk's; without routes each chunk has one tensor for the next one, and gets its
// gradient back.
func (s *Spec) route(chunk int) stages.Route {
	if s.Routes != nil {
		return s.Routes[chunk]
	}
	var r stages.Route
	if chunk > 0 {
		r.Ins = []stages.Port{{Chunk: chunk - 1}}
	}
	if chunk < s.Table.NumChunks-1 {
		r.Outs = []stages.Port{{Chunk: chunk + 1}}
	}
	r.GradIns, r.GradOuts = r.Ins, r.Outs
	return r
}

// Skips are the edges between chunks that are not neighbours, for Table.SetSkips.
func Skips(routes []stages.Route) (skips []scheduler.Skip) {
	for chunk, r := range routes {
		for _, p := range r.Outs {
			if s := (scheduler.Skip{From: chunk, To: p.Chunk}); s.To > s.From+1 && !slices.Contains(skips, s) {
				skips = append(skips, s)
			}
		}
	}
	return skips
}

// creditsOf is what is left on an edge that begins at a chunk.
func (a *stageActor) creditsOf(kind scheduler.EdgeKind, chunk int32, w way) *int {
	c := &a.credits
	switch {
	case w.skip == 0 && kind == scheduler.ForwardEdge:
		return &c.Forward[chunk]
	case w.skip == 0:
		return &c.Backward[chunk]
	case kind == scheduler.ForwardEdge:
		return &c.SkipForward[w.skip-1]
	}
	return &c.SkipBackward[w.skip-1]
}

// lacksCredit is the first edge without one that an action's output needs. Each rank that it goes to gives one back.
func (a *stageActor) lacksCredit(v *visit) (way, bool) {
	for _, w := range v.to {
		if *a.creditsOf(v.kind, v.Chunk, w) < len(w.ranks) {
			return w, true
		}
	}
	return way{}, false
}

// complete reports whether all inputs of an action of a chunk are in the inbox.
func (a *stageActor) complete(order int64, kind uint8, chunk, microbatch int32) bool {
	for slot, c := range a.waysOf[chunk].takes[kind] {
		for part := range c.pieces {
			if _, there := a.inbox[inboxKey{order, kind, chunk, microbatch, int32(slot), int32(part)}]; !there {
				return false
			}
		}
	}
	return true
}
