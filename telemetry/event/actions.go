package event

import (
	"time"

	"github.com/troupe-ml/troupe/scheduler"
)

// ActionTime says when an action ran.
type ActionTime struct {
	Action     scheduler.Action
	Start, End time.Time
	// Parts are the times of its parts, in order, which exchanges of tokens with the ranks of their experts separate. Those of an
	// overlapped pair take turns. nil: neither it nor the other action of its pair exchanged tokens, or the parts were not timed.
	Parts []scheduler.PartTime
}

// Move adds a duration to all times, for example to correct a clock.
func (t *ActionTime) Move(by time.Duration) {
	t.Start, t.End = t.Start.Add(by), t.End.Add(by)
	for i := range t.Parts {
		p := &t.Parts[i]
		if p.Start, p.End = p.Start.Add(by), p.End.Add(by); p.Exchange != 0 {
			p.Sent, p.Came = p.Sent.Add(by), p.Came.Add(by)
		}
	}
}

// Size returns the number of the actions and of their parts, for limits.
func Size(times []ActionTime) int {
	n := len(times)
	for _, t := range times {
		n += len(t.Parts)
	}
	return n
}

// Latest returns the last actions that have at most that Size together.
func Latest(times []ActionTime, most int) []ActionTime {
	from := len(times)
	for from > 0 && most > len(times[from-1].Parts) {
		from--
		most -= 1 + len(times[from].Parts)
	}
	return times[from:]
}

// Clock compares the clock of a rank's process with this process's clock.
type Clock struct {
	Process string        // the name of the rank's process; "": it is this process, and the other fields are unused
	Ahead   time.Duration // how far its clock is ahead
	Within  time.Duration // the uncertainty of Ahead; 0: not measured yet, and Ahead is 0
}

// Actions are the recorded actions of the order that the stages work on: a training step or a validation.
type Actions struct {
	Step  int64 // the current step; of a validation, the number of finished steps
	Phase Phase // 0: no order has begun yet
	Began time.Time
	// Ranks are the finished actions of each rank, in the order in which they ran, in times of this process's clock.
	// Actions of ranks in other processes are those that have been reported so far. nil: the step is not recorded.
	// Callers must not change them.
	Ranks [][]ActionTime
}
