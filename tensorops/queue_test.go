package tensorops

import (
	"errors"
	"testing"
)

// TestQueue: lists go out in their order and come back for reuse, and each is told of its
// end once, refused or not.
func TestQueue(t *testing.T) {
	pool := NewHostMemory(0).NewArena("pool")
	q := NewQueue("q", pool, nil)
	ends := make(map[*List][]error)
	submit := func(l *List) bool { return q.Submit(l, func(err error) { ends[l] = append(ends[l], err) }) }
	if _, ok := q.Poll(); ok {
		t.Error("an empty queue has a list")
	}
	var lists []*List
	for range LimitStreamQueue + 1 {
		lists = append(lists, q.NewList())
	}
	for i, l := range lists {
		if ok := submit(l); ok != (i < LimitStreamQueue) {
			t.Errorf("list %d: accepted %v", i, ok)
		}
	}
	refused := lists[LimitStreamQueue]
	if err := ends[refused]; len(err) != 1 || !errors.Is(err[0], ErrQueueFull) ||
		err[0].Error() != "q: stream queue is full: 64 lists are waiting" {
		t.Errorf("one list too many ended with %v", err)
	}
	if len(pool.lists) != LimitStreamQueue || q.Len() != LimitStreamQueue {
		t.Errorf("%d lists are recorded, %d wait", len(pool.lists), q.Len())
	}
	if q.NewList() != refused {
		t.Error("a list that was refused is not used again")
	}

	first, ok := q.Poll()
	second, ok2 := q.Wait()
	if !ok || !ok2 || first.List != lists[0] || second.List != lists[1] {
		t.Error("the lists don't come in their order")
	}
	failure := errors.New("failure")
	q.Finish(first, failure)
	q.Finish(second, nil)
	q.Close(failure)
	q.Close(ErrClosed)
	if _, ok := q.Wait(); ok || !q.Closed() {
		t.Error("a closed queue gives a list")
	}
	if submit(refused) {
		t.Error("a closed queue takes a list")
	}
	q.Drain()
	for i, l := range lists[:LimitStreamQueue] {
		want := failure
		if i == 1 {
			want = nil
		}
		if err := ends[l]; len(err) != 1 || !errors.Is(err[0], want) {
			t.Errorf("list %d ended with %v", i, err)
		}
	}
	if len(pool.lists) != 0 || q.Len() != 0 {
		t.Errorf("%d lists are recorded, %d wait in the end", len(pool.lists), q.Len())
	}
}
