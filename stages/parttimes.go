package stages

import (
	"sync"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// PartTimes are the times of the parts of an action, which its exchanges of tokens with the ranks of their experts separate. The list
// with the action writes them as the device executes it: see Stage.BeginParts.
type PartTimes struct {
	forward bool
	full    bool       // the action has more parts than an action of a table may have
	mu      sync.Mutex // exchanges end on goroutines of their group
	parts   []scheduler.PartTime
}

// BeginParts times the parts of an action of a type, which is recorded next, until EndParts. nil: the stage has all experts, so there
// are no parts.
func (s *Stage) BeginParts(l *tensorops.List, t scheduler.Type) *PartTimes {
	if s.opts.Experts.size() == 1 {
		return nil
	}
	s.times = &PartTimes{forward: t.IsForward(), parts: make([]scheduler.PartTime, 0, s.mostParts)}
	s.times.begin(l)
	return s.times
}

// EndParts ends the last part of the action.
func (s *Stage) EndParts(l *tensorops.List) {
	t := s.times
	t.end(l)
	s.times, s.mostParts = nil, max(s.mostParts, len(t.parts))
}

// Parts returns the times of the parts, of which the last has no exchange. The list must have completed without an error. nil: the
// action has too many parts for an action of a table.
func (t *PartTimes) Parts() []scheduler.PartTime {
	if t == nil || t.full {
		return nil
	}
	return t.parts
}

// begin records the start of the next part.
func (t *PartTimes) begin(l *tensorops.List) {
	if t == nil {
		return
	}
	if t.full = t.full || len(t.parts) == scheduler.MaxParts; t.full {
		return
	}
	t.parts = append(t.parts, scheduler.PartTime{})
	t.record(l, func(p *scheduler.PartTime, now time.Time) { p.Start = now })
}

// end records the end of the current part.
func (t *PartTimes) end(l *tensorops.List) {
	if t != nil && !t.full {
		t.record(l, func(p *scheduler.PartTime, now time.Time) { p.End = now })
	}
}

// record adds an operation to the list in which the device notes the time in the current part.
func (t *PartTimes) record(l *tensorops.List, note func(p *scheduler.PartTime, now time.Time)) {
	at := len(t.parts) - 1
	l.Call(tensorops.Call{Name: "time", Func: func(_, _ []tensorops.Array) error {
		t.note(at, note)
		return nil
	}})
}

func (t *PartTimes) note(at int, note func(p *scheduler.PartTime, now time.Time)) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	note(&t.parts[at], now)
}

// group returns a group that times its next collective as the exchange after the current part, or as one of several that make up that
// exchange. back: results come back from the experts.
func (t *PartTimes) group(g tensorops.Group, back bool) tensorops.Group {
	if t == nil || t.full {
		return g
	}
	p := &t.parts[len(t.parts)-1]
	switch {
	case t.forward && back:
		p.Exchange = scheduler.FC
	case back:
		p.Exchange = scheduler.BC
	case p.Exchange != 0: // tokens that leave beside those that come back
	case t.forward:
		p.Exchange = scheduler.FD
	default:
		p.Exchange = scheduler.BD
	}
	return &timedGroup{g, t, len(t.parts) - 1}
}

// timedGroup is a group that times a collective.
type timedGroup struct {
	tensorops.Group
	times *PartTimes
	at    int // of the part
}

// Start implements tensorops.Group.
func (g *timedGroup) Start(op *tensorops.Op, done func(error)) {
	g.times.note(g.at, func(p *scheduler.PartTime, now time.Time) {
		if p.Sent.IsZero() {
			p.Sent = now
		}
	})
	g.Group.Start(op, func(err error) {
		g.times.note(g.at, func(p *scheduler.PartTime, now time.Time) {
			if now.After(p.Came) {
				p.Came = now
			}
		})
		done(err)
	})
}
