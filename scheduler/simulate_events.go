package scheduler

import "container/heap"

// event is something that happens at a time in a play that follows a clock.
type event struct {
	time   float64
	kind   eventKind
	rank   int
	action Action
	due    float64 // of inputComing: when
}

// eventKind is in the order in which events of one time happen: a rank decides by all
// that has ended and come, and knows nothing yet of what others begin.
type eventKind uint8

const (
	actionEnded eventKind = iota
	inputArrived
	rankDecides
	inputComing
)

// events are a queue by time.
type events struct{ queue eventHeap }

func (e *events) push(next event) { heap.Push(&e.queue, next) }

// pop returns the next event; ok is false if there is none.
func (e *events) pop() (next event, ok bool) {
	if len(e.queue) == 0 {
		return event{}, false
	}
	return heap.Pop(&e.queue).(event), true
}

type eventHeap []event

func (q eventHeap) Len() int      { return len(q) }
func (q eventHeap) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q eventHeap) Less(i, j int) bool {
	a, b := q[i], q[j]
	switch {
	case a.time != b.time:
		return a.time < b.time
	case a.kind != b.kind:
		return a.kind < b.kind
	}
	return a.rank < b.rank
}
func (q *eventHeap) Push(e any) { *q = append(*q, e.(event)) }
func (q *eventHeap) Pop() any {
	e := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return e
}
