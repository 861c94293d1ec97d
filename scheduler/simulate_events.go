package scheduler

import "math"

// event is something that happens at a point in time in a [loop].
type event struct {
	time   float64
	kind   eventKind
	rank   int
	action Action // of an input: the action that needs it
}

// eventKind orders the events of one time. A rank decides after everything that ends or arrives at
// that time.
type eventKind uint8

const (
	actionEnded eventKind = iota
	inputArrived
	rankDecides
)

// before reports whether an event happens before another.
func (e event) before(o event) bool {
	switch {
	case e.time != o.time:
		return e.time < o.time
	case e.kind != o.kind:
		return e.kind < o.kind
	}
	return e.rank < o.rank
}

// events is a priority queue in the order of before: a binary heap. (With container/heap, which is
// not generic, simulations take 1.5 times as long.)
type events []event

// soonest returns the time of the next event; infinite: there is none.
func (q events) soonest() float64 {
	if len(q) == 0 {
		return math.Inf(1)
	}
	return q[0].time
}

func (q *events) push(next event) {
	h := append(*q, next)
	i := len(h) - 1
	for up := (i - 1) / 2; i > 0 && next.before(h[up]); up = (i - 1) / 2 {
		h[i] = h[up]
		i = up
	}
	h[i] = next
	*q = h
}

// pop removes and returns the next event. The queue must not be empty.
func (q *events) pop() event {
	h := *q
	first, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for down := 1; down < len(h); down = 2*i + 1 {
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(last) {
			break
		}
		h[i] = h[down]
		i = down
	}
	if len(h) > 0 {
		h[i] = last
	}
	*q = h
	return first
}
