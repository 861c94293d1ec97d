// Package fanout gives what is published to any number of readers, none of which can hold the
// publisher up: each has a queue with a bound, and what comes while that is full is dropped and
// counted.
//
// It imports the standard library. It must not know what it carries.
package fanout

import "sync"

// Feed is what readers get values from.
type Feed[T any] struct {
	room int
	lost func(n int) T // tells a reader that n values were dropped

	mu      sync.Mutex
	readers map[*Reader[T]]struct{}
	closed  bool
}

// New makes a feed whose readers have queues of room values.
func New[T any](room int, lost func(n int) T) *Feed[T] {
	return &Feed[T]{room: room, lost: lost, readers: make(map[*Reader[T]]struct{})}
}

// Reader is one who gets the values.
type Reader[T any] struct {
	feed    *Feed[T]
	values  chan T
	dropped int // guarded by feed.mu
}

// Values are those that are published from now on, in order. It is closed with the feed, and by
// Close.
func (r *Reader[T]) Values() <-chan T { return r.values }

// Close ends the reading.
func (r *Reader[T]) Close() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.feed.drop(r)
}

// Subscribe adds a reader. Where the feed is closed, so are its values.
func (f *Feed[T]) Subscribe() *Reader[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &Reader[T]{feed: f, values: make(chan T, f.room)}
	if f.closed {
		close(r.values)
		return r
	}
	f.readers[r] = struct{}{}
	return r
}

// Publish gives every reader a value: what the function of returns for a reader with that many
// values waiting. Needed values may use some reserved room.
func (f *Feed[T]) Publish(needed bool, of func(waiting int) T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		free := cap(r.values) - len(r.values)
		if r.dropped > 0 && free > reserve {
			r.values <- f.lost(r.dropped)
			r.dropped, free = 0, free-1
		}
		if free == 0 || !needed && free <= reserve {
			r.dropped++
			continue
		}
		r.values <- of(len(r.values))
	}
}

// reserve is the room of a queue that is kept for what is needed.
const reserve = 16

// Readers is how many there are.
func (f *Feed[T]) Readers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.readers)
}

// Close ends all readers behind what waits for them, and tells those who have lost something.
func (f *Feed[T]) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for r := range f.readers {
		if r.dropped > 0 && len(r.values) < cap(r.values) {
			r.values <- f.lost(r.dropped)
		}
		f.drop(r)
	}
}

// drop ends a reader. mu is held.
func (f *Feed[T]) drop(r *Reader[T]) {
	if _, ok := f.readers[r]; ok {
		delete(f.readers, r)
		close(r.values)
	}
}
