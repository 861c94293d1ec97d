package world

// Report is what Check found out about a world.
type Report struct {
	Steps       int // of all ranks
	Collectives int // of all groups; one of several members is one
	Messages    int
	// Later is the most collectives of a group that a member has begun at once for later.
	Later int
}

// Check proves that every rank comes to the end of its steps, and that the members of each group meet in the same
// collectives for the same numbers. What is wrong is a [*Fault].
func Check(w *World) (*Report, error) {
	faults, r := check(w)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return r, nil
}

// check lists all that comes up before nobody gets on: what members of groups disagree on, or else why ranks wait.
func check(w *World) ([]*Fault, *Report) {
	if err := w.validate(); err != nil {
		return []*Fault{err}, nil
	}
	r := &Report{}
	if f := w.countLater(r); f != nil {
		return []*Fault{f}, nil
	}
	p := newPlayer(w)
	p.play()
	if len(p.faults) == 0 {
		if rank := p.stuck(); rank >= 0 {
			return []*Fault{p.explain(rank)}, nil
		}
	}
	r.Collectives = p.met
	for i := range w.Ranks {
		r.Steps += len(w.Ranks[i].Steps)
		for k := range w.Ranks[i].Steps {
			r.Messages += len(w.Ranks[i].Steps[k].Sends)
		}
	}
	return p.faults, r
}

// countLater refuses a rank that begins more collectives of a group at once than the world allows. Whether a run
// would hold so many depends on how far the others are.
func (w *World) countLater(r *Report) *Fault {
	begun := make(map[int32]int)
	for rank := range w.Ranks {
		for s := range w.Ranks[rank].Steps {
			step := &w.Ranks[rank].Steps[s]
			clear(begun)
			for _, o := range step.Ops {
				if o.Group < 0 {
					clear(begun)
					continue
				}
				n := begun[o.Group] + 1 // with this one
				if o.Later {
					begun[o.Group] = n
				}
				r.Later = max(r.Later, begun[o.Group])
				if w.Pending > 0 && n > w.Pending {
					return w.tooMany(rank, s, int(o.Group), n)
				}
			}
		}
	}
	return nil
}

// stuck is a rank that waits; -1: all have come to their ends.
func (p *player) stuck() int {
	for rank := range p.ranks {
		if !p.done(rank) {
			return rank
		}
	}
	return -1
}
