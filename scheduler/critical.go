package scheduler

import (
	"fmt"
	"math"
	"slices"
)

// Why says what an action of a critical path waited for last.
type Why uint8

const (
	// FirstOfAll: nothing; the action is the first of the path.
	FirstOfAll Why = iota
	// SameRank: the rank was busy with its previous action.
	SameRank
	// Message: an input had not arrived, usually from another rank.
	Message
	// CreditBack: the receiver of its output had to start an action that returned a credit.
	CreditBack
)

var whys = [...]string{"first of the step", "same rank", "message", "credit"}

func (w Why) String() string { return whys[min(int(w), len(whys)-1)] }

// PathStep is one action of a critical path.
type PathStep struct {
	Rank, Position int // in the table
	Action         Action
	// Start and End bound the part of the action that is on the path, in milliseconds. For an
	// action that only returned a credit at its start they are equal; otherwise they span the whole
	// action.
	Start, End float64
	// Why says why the action started when it did. Wait is the time in milliseconds since the end
	// of the action before it on the path: the time of a message, or of the rank's own work between
	// two actions. For the first action it counts from the start of the step.
	Why  Why
	Wait float64
}

// Path is the critical path of a step: the chain of actions and waits that determines the step's
// time.
type Path struct {
	Steps []PathStep // in order of time
	// ComputeMS is the total time of the path's actions. The others are the totals of its waits:
	// for messages, for credits, between two actions of one rank, and before the first action.
	ComputeMS, MessageMS, CreditMS, RankMS, BeginMS float64
}

// TotalMS is the time from the step's start to the end of its last action. It is the sum of the
// five parts, as far as the clocks agree.
func (p *Path) TotalMS() float64 {
	return p.ComputeMS + p.MessageMS + p.CreditMS + p.RankMS + p.BeginMS
}

// Critical returns the critical path of a measured step. If any action on it had been shorter, the
// step would have been shorter too. Some actions of the step may not have ended yet.
//
// The path is found from its end. Its last action is the one that ends last. Before each action
// stands the one that it waited for last: the previous action on its rank, or one whose output it
// takes, over an edge of the table or a skip. The time at which an output arrived was not measured.
// It is taken as the end of the action that made it plus the time of the step's fastest message
// between the two ranks. With credits, the action whose start returned the credit counts as well.
// An overlapped pair waits for the inputs of both of its actions. The time left between the end of
// one action and the start of the next is a wait, of the kind given by the second action's Why.
//
// With simulated times, where actions take their cost and messages the time of the link, the path
// is as long as the makespan and has waits only for messages.
//
// Where the clocks of hosts differ, a wait may come out negative; it counts as 0.
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
	return nil, fmt.Errorf("%w: actions of the step wait for each other in a cycle", ErrTable)
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
