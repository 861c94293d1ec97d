package tensorops

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Queue holds the lists that were submitted to a stream, in order, at most LimitStreamQueue. It
// also keeps completed lists for reuse, and reports incomplete lists to the stream's pool. It is
// for devices.
type Queue struct {
	name    string
	pool    *Pool
	element func(DType) int

	mu     sync.Mutex
	work   sync.Cond
	lists  []Submission
	length atomic.Int32 // len(lists), readable without the lock
	spare  []*List
	closed error // why no list is accepted any more
}

// Submission is a submitted list with its completion callback.
type Submission struct {
	List *List
	Done func(error)
}

// NewQueue makes the queue of a stream; elementBytes has the meaning that it has in the function
// NewList.
func NewQueue(name string, pool *Pool, elementBytes func(DType) int) *Queue {
	q := &Queue{name: name, pool: pool, element: elementBytes}
	q.work.L = &q.mu
	return q
}

// NewList implements Stream.
func (q *Queue) NewList() *List {
	hold := q.pool.Hold()
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.unused()
	l.hold = hold
	return l
}

// unused returns an empty list. The caller must hold mu.
func (q *Queue) unused() *List {
	k := len(q.spare) - 1
	if k < 0 {
		return NewList(q.pool, q.element)
	}
	l := q.spare[k]
	q.spare = q.spare[:k]
	return l
}

// Submit queues a list. If it refuses the list it completes it with an error and returns false.
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
		return fmt.Errorf("%w: %d lists are waiting", ErrQueueFull, len(q.lists))
	}
	q.lists = append(q.lists, sub)
	q.length.Add(1)
	return nil
}

// Len returns the number of waiting lists. It takes no lock.
func (q *Queue) Len() int { return int(q.length.Load()) }

// Wait waits for a list and takes it; false if the queue was closed.
func (q *Queue) Wait() (Submission, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lists) == 0 && q.closed == nil {
		q.work.Wait()
	}
	return q.next()
}

// Poll takes a list if one is waiting and the queue is open.
func (q *Queue) Poll() (Submission, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next()
}

// next takes the next list. The caller must hold mu.
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

// Close makes the queue refuse lists with an error such as ErrClosed. Only the first error counts.
func (q *Queue) Close(why error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = why
	}
	q.mu.Unlock()
	q.work.Broadcast()
}

// Drain completes the lists that wait in a closed queue.
func (q *Queue) Drain() {
	q.mu.Lock()
	waiting := q.lists // no list is added any more
	q.lists = nil
	q.length.Store(0)
	q.mu.Unlock()
	for _, sub := range waiting {
		q.Finish(sub, fmt.Errorf("%s: %w", q.name, q.closed))
	}
}

// Finish takes a list back, executed or not, and calls its completion callback. In both cases the
// buffers that it freed are free.
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
