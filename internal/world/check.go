package world

// Report has the counts of a world that Check has proved.
type Report struct {
	Steps       int // of all ranks
	Collectives int // of all groups; a collective counts once, whatever the number of its members
	Messages    int
	// Later is the largest number of unfinished collectives that a member begins for later in one group.
	Later int
}

// Check proves that every rank finishes its steps, and that the members of each group meet in the same collectives for the same
// tensors. The error is a [*Fault].
func Check(w *World) (*Report, error) {
	faults, r := check(w)
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return r, nil
}

// check plays the world until no rank can continue. It lists where members of groups disagree, or otherwise why ranks wait.
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

// countLater rejects a rank that may have more collectives of a group unfinished than the world allows. Whether a run really has
// that many depends on the progress of the other ranks.
func (w *World) countLater(r *Report) *Fault {
	begun := make(map[int32]int)
	var groups []int32 // by number - 1, of those that were begun for later; -1: awaited
	for rank := range w.Ranks {
		for s := range w.Ranks[rank].Steps {
			step := &w.Ranks[rank].Steps[s]
			clear(begun)
			groups = groups[:0]
			for _, o := range step.Ops {
				switch at := int(o.Number) - 1; {
				case o.Group >= 0:
				case at < 0:
					clear(begun)
					for i := range groups {
						groups[i] = -1
					}
					continue
				case at < len(groups) && groups[at] >= 0:
					begun[groups[at]]--
					groups[at] = -1
					continue
				default:
					continue
				}
				n := begun[o.Group] + 1 // with this one
				if o.Later {
					begun[o.Group], groups = n, append(groups, o.Group)
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

// stuck returns a rank that waits; -1: all ranks have finished.
func (p *player) stuck() int {
	for rank := range p.ranks {
		if !p.done(rank) {
			return rank
		}
	}
	return -1
}
