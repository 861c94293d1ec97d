package cluster

import (
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/internal/wire"
)

// status returns what the stages here are doing.
func (w *membership) status() []*wire.StatusReply {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*wire.StatusReply
	for _, p := range w.parts {
		if p.stages == nil {
			continue
		}
		r := &wire.StatusReply{Attempt: p.id[:], TimeNs: w.cfg.wallNow().UnixNano()}
		for _, s := range p.stages.Status().Actors {
			r.Actors = append(r.Actors, actors.PackSnapshot(s, w.cfg.wall))
		}
		p.recorded(r)
		all = append(all, r)
	}
	for id, why := range w.gaveUp {
		all = append(all, &wire.StatusReply{Attempt: id[:], TimeNs: w.cfg.wallNow().UnixNano(), GaveUp: why})
	}
	return all
}

// unreachable lists the processes that this one can't reach.
func (w *membership) unreachable() (all []*wire.Unreachable) {
	w.mu.Lock()
	silence := w.silence
	w.mu.Unlock()
	for id, quiet := range w.mesh.Unreachable(silence) {
		all = append(all, &wire.Unreachable{Incarnation: id[:], ForS: quiet.Seconds()})
	}
	return all
}

// recorded adds to a worker's status the actions that its stages have finished since the last status, and the memory
// that they use. w.mu is held.
func (p *part) recorded(r *wire.StatusReply) {
	wall := p.w.cfg.wall
	for _, a := range p.stages.ActionsSince(p.told, limitBeatActions) {
		r.Actions = append(r.Actions, &wire.RankActions{Rank: apiwire.Small(a.Rank), Step: a.Step, Order: a.Order, Phase: uint32(a.Phase),
			First: int64(a.First), Times: actors.PackActions(a.Times, wall)})
	}
	taken := p.set.TakenBy()
	for _, s := range p.stages.Status().Actors {
		if n, ok := taken[s.Actor]; ok {
			r.Memory = append(r.Memory, &wire.RankMemory{Rank: apiwire.Small(s.Rank), Bytes: n})
		}
	}
}
