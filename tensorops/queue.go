package tensorops

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Queue holds the lists that were submitted to a stream, at most LimitStreamQueue, in
// their order. It also keeps lists that are complete for reuse, and counts with the
// stream's pool those that are not. It is for devices.
type Queue struct {
	name    string
	pool    *Pool
	element func(DType) int

	mu     sync.Mutex
	work   sync.Cond
	lists  []Submission
	length atomic.Int32 // len(lists), readable without the lock
	spare  []*List
	closed error // why nothing is taken any more
}

// Submission is a list with what is told of its end.
type Submission struct {
	List *List
	Done func(error)
}

// NewQueue makes the queue of a stream; elementBytes is as NewList's.
func NewQueue(name string, pool *Pool, elementBytes func(DType) int) *Queue {
	q := &Queue{name: name, pool: pool, element: elementBytes}
	q.work.L = &q.mu
	return q
}

// NewList is Stream's.
func (q *Queue) NewList() *List {
	hold := q.pool.Hold()
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.unused()
	l.hold = hold
	return l
}

// unused is an empty list. It is called with mu held.
func (q *Queue) unused() *List {
	k := len(q.spare) - 1
	if k < 0 {
		return NewList(q.pool, q.element)
	}
	l := q.spare[k]
	q.spare = q.spare[:k]
	return l
}

// Submit queues a list. It ends one that is refused, and returns false.
func (q *Queue) Submit(l *List, done func(error)) bool {
	sub := Submission{l, done}
	err := q.add(sub)
	if err != nil {
		q.Finish(sub, fmt.Errorf("%s: %w", q.name, err))
		return false
	}
	q.work.Signal()
	return true
}

func (q *Queue) add(sub Submission) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return q.closed
	case len(q.lists) >= LimitStreamQueue:
		return fmt.Errorf("%w: %d lists wait", ErrQueueFull, len(q.lists))
	}
	q.lists = append(q.lists, sub)
	q.length.Add(1)
	return nil
}

// Len is how many lists wait. It takes no lock.
func (q *Queue) Len() int { return int(q.length.Load()) }

// Wait waits for a list and takes it; false when the queue was closed.
func (q *Queue) Wait() (Submission, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lists) == 0 && q.closed == nil {
		q.work.Wait()
	}
	return q.next()
}

// Poll takes a list if one waits and the queue is open.
func (q *Queue) Poll() (Submission, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next()
}

// next is called with mu held.
func (q *Queue) next() (Submission, bool) {
	if q.closed != nil || len(q.lists) == 0 {
		return Submission{}, false
	}
	sub := q.lists[0]
	q.lists = append(q.lists[:0], q.lists[1:]...)
	q.length.Add(-1)
	return sub, true
}

// Closed reports whether the queue was closed.
func (q *Queue) Closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed != nil
}

// Close makes the queue refuse lists, with an error such as ErrClosed. The first one counts.
func (q *Queue) Close(why error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = why
	}
	q.mu.Unlock()
	q.work.Broadcast()
}

// Drain ends the lists that wait in a closed queue.
func (q *Queue) Drain() {
	q.mu.Lock()
	waiting := q.lists // nobody adds to it any more
	q.lists = nil
	q.length.Store(0)
	q.mu.Unlock()
	for _, sub := range waiting {
		q.Finish(sub, fmt.Errorf("%s: %w", q.name, q.closed))
	}
}

// Finish takes a list back, executed or not, and reports its end: either way, what it
// freed is free.
func (q *Queue) Finish(sub Submission, err error) {
	sub.List.Complete()
	hold := sub.List.hold
	sub.List.Reset()
	q.mu.Lock()
	q.spare = append(q.spare, sub.List)
	q.mu.Unlock()
	q.pool.Release(hold)
	sub.Done(err)
}
