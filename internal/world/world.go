package world

import (
	"errors"
	"fmt"
)

// The kinds of faults.
var (
	// ErrWorld: the ranks, edges or groups contradict each other.
	ErrWorld = errors.New("malformed world")
	// ErrMismatch: members of a group bring different collectives.
	ErrMismatch = errors.New("collectives differ in a group")
	// ErrMixed: members of a group bring the same collective for different tensors.
	ErrMixed = errors.New("a collective mixes different numbers")
	// ErrMissing: a rank waits for one that has finished its steps.
	ErrMissing = errors.New("a rank never arrives")
	// ErrDeadlock: ranks wait for each other.
	ErrDeadlock = errors.New("ranks deadlock")
	// ErrPending: a member begins more collectives than its group takes at once.
	ErrPending = errors.New("too many collectives at once")
	// ErrTooLarge: the ranks have more steps than Check can prove.
	ErrTooLarge = errors.New("grid too large to prove")
)

// World has the steps of all ranks, and the edges and groups between them.
type World struct {
	Name   string // its name in errors, such as the sizes of a grid
	Ranks  []Rank
	Edges  []Edge
	Groups []Group
	// Pending limits the unfinished collectives that a member has begun for later in a group; 0: no limit.
	Pending int
}

// Rank has the steps of one rank, in order.
type Rank struct {
	Name  string // its name in errors, in addition to its number
	Steps []Step
}

// Step is a unit of a rank's work. It starts when all its messages have arrived.
type Step struct {
	Name  string
	Takes []Message // inputs
	Sends []Message // outputs
	Ops   []Op      // collectives, in order
}

// Message identifies a message of an edge. It is sent once and taken once, in any order.
type Message struct{ Edge, Number int32 }

// Edge is a message path between two ranks, or from a rank to itself.
type Edge struct {
	Name     string
	From, To int
	Credits  int // limit of messages in flight; negative: no limit
}

// Group is a set of ranks that run collectives together.
type Group struct {
	Name    string
	Members []int // ranks, each once
}

// Op is a collective of a group, or a wait: Await or AwaitOne.
type Op struct {
	Group int32
	// Number is that of AwaitOne; 0: the wait is Await.
	Number int32
	// What names the collective and its tensor. Members that disagree are rejected when they meet.
	What string
	// Of identifies the tensor where a run would not notice a disagreement; "": nothing to compare. With OfStep, the step's name
	// is part of it.
	Of     string
	OfStep bool
	Later  bool // it overlaps with the actions that follow
	// Exchange: it is one of an expert group, which carries tokens to their experts or back. Where an action of an overlapped pair would
	// wait for it, it gives way. Back: results come back.
	Exchange, Back bool
}

// Await waits for all collectives that its step has begun for later.
var Await = Op{Group: -1}

// AwaitOne waits for the collective of that number, from 1, among those that its step has begun for later. It waits for nothing if
// that has ended, or if the step has begun fewer: a list of operations refuses such a wait when it is recorded.
func AwaitOne(number int) Op { return Op{Group: -1, Number: int32(number)} }

// maxPerWorld bounds each kind of thing in a world.
const maxPerWorld = 1 << 24

// validate rejects a malformed world. Every message must be sent once and taken once.
func (w *World) validate() *Fault {
	fail := func(format string, args ...any) *Fault {
		return &Fault{World: w.Name, Kind: ErrWorld, Text: fmt.Sprintf(format, args...), Group: -1}
	}
	if len(w.Ranks) > maxPerWorld || len(w.Edges) > maxPerWorld || len(w.Groups) > maxPerWorld {
		return fail("%d ranks, %d edges, %d groups: the limit is %d", len(w.Ranks), len(w.Edges), len(w.Groups), maxPerWorld)
	}
	for i, e := range w.Edges {
		if e.From < 0 || e.From >= len(w.Ranks) || e.To < 0 || e.To >= len(w.Ranks) {
			return fail("edge %d (%s) leads from rank %d to rank %d, but the ranks are 0 to %d", i, e.Name, e.From, e.To, len(w.Ranks)-1)
		}
	}
	members := make([]map[int]bool, len(w.Groups))
	for i, g := range w.Groups {
		seen := make(map[int]bool, len(g.Members))
		for _, m := range g.Members {
			switch {
			case m < 0 || m >= len(w.Ranks):
				return fail("group %d (%s) has rank %d, but the ranks are 0 to %d", i, g.Name, m, len(w.Ranks)-1)
			case seen[m]:
				return fail("group %d (%s) has rank %d twice", i, g.Name, m)
			}
			seen[m] = true
		}
		members[i] = seen
	}
	const sent, taken = 1, 2
	messages := make(map[Message]uint8)
	for r, rank := range w.Ranks {
		for s := range rank.Steps {
			step := &rank.Steps[s]
			for _, ways := range []struct {
				list     []Message
				bit      uint8
				verb     string
				end      func(Edge) int
				endsWith string
			}{
				{step.Takes, taken, "takes", func(e Edge) int { return e.To }, "to"},
				{step.Sends, sent, "sends", func(e Edge) int { return e.From }, "from"},
			} {
				for _, m := range ways.list {
					if m.Edge < 0 || int(m.Edge) >= len(w.Edges) {
						return fail("step %d of rank %d (%s) %s over edge %d, but there are %d", s, r, step.Name, ways.verb, m.Edge, len(w.Edges))
					}
					e := w.Edges[m.Edge]
					if ways.end(e) != r {
						return fail("rank %d: %s %s message %d over edge %s, which leads %s rank %d", r, step.Name, ways.verb, m.Number, e.Name, ways.endsWith,
							ways.end(e))
					}
					if messages[m]&ways.bit != 0 {
						return fail("rank %d: %s %s message %d of edge %s for the second time", r, step.Name, ways.verb, m.Number, e.Name)
					}
					messages[m] |= ways.bit
				}
			}
			for _, o := range step.Ops {
				switch {
				case o.Group < -1 || int(o.Group) >= len(w.Groups):
					return fail("rank %d: %s has a collective of group %d, but there are %d", r, step.Name, o.Group, len(w.Groups))
				case o.Group >= 0 && !members[o.Group][r]:
					return fail("rank %d: %s has %s in group %s, whose members are %s", r, step.Name, o.What, w.Groups[o.Group].Name,
						few(w.Groups[o.Group].Members))
				}
			}
		}
	}
	for r, rank := range w.Ranks { // in order, so that the error is the same each time
		for s := range rank.Steps {
			step := &rank.Steps[s]
			for _, m := range step.Takes {
				if messages[m]&sent == 0 {
					return fail("rank %d: %s takes message %d of edge %s, which no step of rank %d sends", r, step.Name, m.Number, w.Edges[m.Edge].Name,
						w.Edges[m.Edge].From)
				}
			}
			for _, m := range step.Sends {
				if messages[m]&taken == 0 {
					return fail("rank %d: %s sends message %d over edge %s, which no step of rank %d takes", r, step.Name, m.Number, w.Edges[m.Edge].Name,
						w.Edges[m.Edge].To)
				}
			}
		}
	}
	return nil
}
