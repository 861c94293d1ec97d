package world

import "slices"

// player plays a world.
type player struct {
	w       *World
	ranks   []state
	credits []int // of each edge, that are left
	arrived map[Message]bool
	groups  []meeting
	due     []int // ranks that may get on
	faults  []*Fault
	met     int // collectives that were carried out
}

// state is how far a rank has come.
type state struct {
	step, op int
	begun    bool  // the step has started
	inside   bool  // the operation waits for its group
	begins   int   // collectives of the step that were begun for later
	later    []int // the numbers of those that have not ended
	queued   bool
}

// meeting is a group's.
type meeting struct {
	place  map[int]int // of each member
	next   []int       // the number, from 0, of each member's next collective
	base   int         // of the first round
	rounds []*round    // to which somebody has come, and that are not carried out
}

// round is a collective of a group.
type round struct {
	calls []call // by member
	came  int
	first int  // the member that came first
	over  bool // the members bring different ones: it is never carried out
	mixed bool // it is told that they bring different numbers
}

// call is where a member comes to a collective.
type call struct {
	here     bool
	rank     int
	step, op int
	number   int // of a collective that was begun for later; 0: its rank waits for it
}

func newPlayer(w *World) *player {
	p := &player{w: w, ranks: make([]state, len(w.Ranks)), arrived: make(map[Message]bool), groups: make([]meeting, len(w.Groups))}
	for _, e := range w.Edges {
		p.credits = append(p.credits, e.Credits)
	}
	for i, g := range w.Groups {
		m := &p.groups[i]
		m.place, m.next = make(map[int]int, len(g.Members)), make([]int, len(g.Members))
		for k, rank := range g.Members {
			m.place[rank] = k
		}
	}
	return p
}

// play lets every rank come as far as it can.
func (p *player) play() {
	for rank := range p.ranks {
		p.wake(rank)
	}
	for len(p.due) > 0 {
		rank := p.due[len(p.due)-1]
		p.due = p.due[:len(p.due)-1]
		p.ranks[rank].queued = false
		p.advance(rank)
	}
}

func (p *player) wake(rank int) {
	if s := &p.ranks[rank]; !s.queued {
		s.queued = true
		p.due = append(p.due, rank)
	}
}

func (p *player) done(rank int) bool { return p.ranks[rank].step == len(p.w.Ranks[rank].Steps) }

// advance takes a rank as far as it can come now.
func (p *player) advance(rank int) {
	s := &p.ranks[rank]
	for !p.done(rank) {
		step := &p.w.Ranks[rank].Steps[s.step]
		if !s.begun {
			if !p.ready(step) {
				return
			}
			p.start(step)
			s.begun, s.op, s.begins = true, 0, 0
		}
		for s.op < len(step.Ops) {
			o := &step.Ops[s.op]
			switch {
			case o.Group < 0:
				if o.Number == 0 && len(s.later) > 0 || slices.Contains(s.later, int(o.Number)) {
					return
				}
				s.op++
			case s.inside: // and nobody has said that it is through
				return
			case o.Later:
				s.begins++
				s.later = append(s.later, s.begins)
				s.op++
				p.join(rank, s.step, s.op-1, s.begins)
			default:
				s.inside = true
				p.join(rank, s.step, s.op, 0)
			}
		}
		if len(s.later) > 0 {
			return
		}
		for _, m := range step.Sends {
			p.arrived[m] = true
			p.wake(p.w.Edges[m.Edge].To)
		}
		s.step, s.begun = s.step+1, false
	}
}

// ready says whether a step may start.
func (p *player) ready(step *Step) bool {
	for _, m := range step.Takes {
		if !p.arrived[m] {
			return false
		}
	}
	for i := range step.Sends {
		if !p.hasCredit(step.Sends, i) {
			return false
		}
	}
	return true
}

// hasCredit says whether an edge has credits for the first i+1 of what is sent.
func (p *player) hasCredit(sends []Message, i int) bool {
	edge := sends[i].Edge
	if p.w.Edges[edge].Credits < 0 {
		return true
	}
	n := 0
	for _, m := range sends[:i+1] {
		if m.Edge == edge {
			n++
		}
	}
	return n <= p.credits[edge]
}

func (p *player) start(step *Step) {
	for _, m := range step.Sends {
		p.credits[m.Edge]--
	}
	for _, m := range step.Takes {
		p.credits[m.Edge]++
		p.wake(p.w.Edges[m.Edge].From)
	}
}

// join brings a rank to its next collective of a group. number is that of a collective that is begun for later.
func (p *player) join(rank, step, op, number int) {
	o := &p.w.Ranks[rank].Steps[step].Ops[op]
	g := &p.groups[o.Group]
	member := g.place[rank]
	at := g.next[member] - g.base
	g.next[member]++
	if at == len(g.rounds) {
		g.rounds = append(g.rounds, &round{calls: make([]call, len(g.next)), first: member})
	}
	r := g.rounds[at]
	r.calls[member] = call{true, rank, step, op, number}
	r.came++
	p.compare(int(o.Group), g.base+at, r, member)
	for len(g.rounds) > 0 && g.rounds[0].came == len(g.next) && !g.rounds[0].over {
		calls := g.rounds[0].calls
		g.rounds[0] = nil
		g.rounds = g.rounds[1:]
		g.base++
		p.met++
		for _, c := range calls {
			s := &p.ranks[c.rank]
			if c.number > 0 {
				s.later = slices.DeleteFunc(s.later, func(n int) bool { return n == c.number })
			} else {
				s.inside = false
				s.op++
			}
			p.wake(c.rank)
		}
	}
}

func (p *player) op(c call) *Op { return &p.w.Ranks[c.rank].Steps[c.step].Ops[c.op] }

// compare holds what a member brings against what the first one did.
func (p *player) compare(group, number int, r *round, member int) {
	first, mine := r.calls[r.first], r.calls[member]
	switch {
	case member == r.first:
	case !r.over && p.op(first).What != p.op(mine).What:
		r.over = true
		p.faults = append(p.faults, p.differ(ErrMismatch, group, number, first, mine))
	case !r.mixed && p.op(first).What == p.op(mine).What && !p.sameNumbers(first, mine):
		r.mixed = true
		p.faults = append(p.faults, p.differ(ErrMixed, group, number, first, mine))
	}
}

// sameNumbers says whether two members of a collective bring numbers of the same things.
func (p *player) sameNumbers(a, b call) bool {
	x, y := p.op(a), p.op(b)
	return x.Of == y.Of && x.OfStep == y.OfStep && (!x.OfStep || p.w.Ranks[a.rank].Steps[a.step].Name == p.w.Ranks[b.rank].Steps[b.step].Name)
}
