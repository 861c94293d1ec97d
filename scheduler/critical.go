package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// Why says what an action of a critical path waited for last.
type Why uint8

const (
	// FirstOfAll: nothing; it is the first of the path.
	FirstOfAll Why = iota
	// SameRank: its rank was busy with the action before.
	SameRank
	// Message: the output of an action was not there, mostly of one on another rank.
	Message
	// CreditBack: an action on the rank that takes its output began, and gave back a credit.
	CreditBack
)

var whys = [...]string{"begins the step", "same rank", "message", "credit"}

func (w Why) String() string { return whys[min(int(w), len(whys)-1)] }

// PathStep is an action of a critical path.
type PathStep struct {
	Rank, Position int // in the table
	Action         Action
	// Start and End are the part of the action that is on the path: all of it, but of one whose start
	// gave a credit back nothing.
	Start, End float64
	// Why the action began when it did, and Wait how long after the end of what is before it in the path: the time of a
	// message, or what a rank needs between two actions; of the first action since the step's begin.
	Why  Why
	Wait float64
}

// Path is what a step's time is made of.
type Path struct {
	Steps []PathStep // in the order of time
	// ComputeMS are those of the actions of the path. The others are its waits: for messages, for credits, between two
	// actions of one rank, and before the first.
	ComputeMS, MessageMS, CreditMS, RankMS, BeginMS float64
}

// TotalMS is the time from the step's begin to the end of its last action: the sum of the
// others, as far as clocks are right.
func (p *Path) TotalMS() float64 {
	return p.ComputeMS + p.MessageMS + p.CreditMS + p.RankMS + p.BeginMS
}

// Critical returns the critical path of a measured step: if any action on it had been shorter, the step would have been
// so too. Ranks of the step may have actions that have not ended.
//
// It is found from the end. The last action of the path is the one that ends last. The one before it is that which the
// action waited for last: the action before it on its rank, or one whose output it takes, by a table's edge or skip. An output counts
// as there when it was made and as much later as the fastest message of the step between the two ranks took:
// how long each one is under way nobody measures. With credits the action whose
// start gave one back counts too. An overlapped pair waits for what either of its actions needs. What is left
// between the end of one action and the start of the next is a wait of the kind of the second's Why.
//
// With simulated times, where actions take what they cost and messages what the link says, the path is as
// long as the makespan, and has no waits but those of messages.
//
// Where clocks of hosts are wrong a wait may come out below 0; it counts as 0.
func (s *Step) Critical() (*Path, error) {
	m, err := s.measure()
	if err != nil {
		return nil, err
	}
	last, end := place{rank: -1}, math.Inf(-1)
	for r, row := range s.MS {
		for i := range row {
			if at := m.end(place{r, i}); at > end {
				last, end = place{r, i}, at
			}
		}
	}
	path := &Path{}
	if last.rank < 0 {
		return path, nil
	}
	at, whole := last, true
	for range s.Table.numActions() + 1 {
		c := m.latest(at)
		s := PathStep{Rank: at.rank, Position: at.position, Action: m.action(at), Start: m.start(at), End: m.start(at), Why: c.why}
		if whole {
			s.End = m.end(at)
		}
		before := 0.0
		switch c.why {
		case SameRank, Message:
			before = m.end(c.from)
		case CreditBack:
			before = m.start(c.from)
		}
		s.Wait = max(0, s.Start-before)
		path.add(s)
		if c.why == FirstOfAll {
			slices.Reverse(path.Steps)
			return path, nil
		}
		at, whole = c.from, c.why != CreditBack
	}
	return nil, fmt.Errorf("%w: actions of the step wait for each other", ErrTable)
}

func (p *Path) add(s PathStep) {
	p.Steps = append(p.Steps, s)
	p.ComputeMS += s.End - s.Start
	switch s.Why {
	case FirstOfAll:
		p.BeginMS += s.Wait
	case SameRank:
		p.RankMS += s.Wait
	case Message:
		p.MessageMS += s.Wait
	case CreditBack:
		p.CreditMS += s.Wait
	}
}
