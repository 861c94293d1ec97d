package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// stream executes lists in order in a goroutine of its own.
type stream struct {
	name  string
	dev   *Device
	arena tensorops.Arena
	exec  exec
	wake  chan struct{} // a core was granted

	mu     sync.Mutex
	work   sync.Cond
	queue  []submission
	queued atomic.Int32 // len(queue), readable without the lock
	spare  []*tensorops.List
	closed bool
	ended  chan struct{}
}

type submission struct {
	list *tensorops.List
	done func(error)
}

func newStream(d *Device, name string) *stream {
	s := &stream{name: name, dev: d, arena: d.memory.NewArena(name), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	s.work.L = &s.mu
	s.exec = exec{dev: d}
	s.exec.job = &job{x: &s.exec, idle: make(chan struct{}, 1)}
	go s.run()
	return s
}

func (s *stream) Arena() tensorops.Arena { return s.arena }

func (s *stream) NewList() *tensorops.List {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := len(s.spare) - 1; k >= 0 {
		l := s.spare[k]
		s.spare = s.spare[:k]
		return l
	}
	return tensorops.NewList(s.arena, nil)
}

func (s *stream) Submit(l *tensorops.List, done func(error)) {
	s.mu.Lock()
	var err error
	switch {
	case s.closed:
		err = fmt.Errorf("%s: %w", s.name, tensorops.ErrClosed)
	case len(s.queue) >= tensorops.LimitStreamQueue:
		err = fmt.Errorf("%s: %w: %d lists wait", s.name, tensorops.ErrQueueFull, len(s.queue))
	default:
		s.queue = append(s.queue, submission{l, done})
		s.queued.Add(1)
	}
	s.mu.Unlock()
	if err != nil {
		s.finish(submission{l, done}, err)
		return
	}
	s.work.Signal()
}

// Close also gives the pool's memory back and makes the device forget the stream.
func (s *stream) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.work.Signal()
	<-s.ended
	tensorops.CloseArena(s.arena)
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	s.dev.streams = slices.DeleteFunc(s.dev.streams, func(other *stream) bool { return other == s })
}

// next waits for a list; false when the stream was closed.
func (s *stream) next() (submission, bool) {
	s.linger()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.closed {
		s.work.Wait()
	}
	if s.closed {
		return submission{}, false
	}
	sub := s.queue[0]
	s.queue = append(s.queue[:0], s.queue[1:]...)
	s.queued.Add(-1)
	return sub, true
}

// lingerTime is how long a stream waits for its next list without going to
// sleep: about what it costs to wake a sleeping thread on a machine that has gone
// idle.
const lingerTime = 100 * time.Microsecond

// linger waits that long at most, and only while nobody else has a use for the
// core: often the next list is microseconds away.
func (s *stream) linger() {
	c := s.dev.cores
	for end := time.Now().Add(lingerTime); time.Now().Before(end); runtime.Gosched() {
		for range spins / 20 {
			if s.queued.Load() > 0 || c.posted.Load() > 0 || c.waiting.Load() > 0 {
				return
			}
			spin()
		}
	}
}

func (s *stream) run() {
	defer close(s.ended)
	for {
		sub, ok := s.next()
		if !ok {
			break
		}
		s.finish(sub, s.execute(sub.list))
	}
	for _, sub := range s.queue { // nobody adds to it once closed is set
		s.finish(sub, fmt.Errorf("%s: %w", s.name, tensorops.ErrClosed))
	}
}

// finish takes a list back, executed or not: either way, what it freed is free.
func (s *stream) finish(sub submission, err error) {
	sub.list.Complete()
	sub.list.Reset()
	s.mu.Lock()
	s.spare = append(s.spare, sub.list)
	s.mu.Unlock()
	sub.done(err)
}

// execute runs one list on a core of the device.
func (s *stream) execute(l *tensorops.List) (err error) {
	if err := l.Err(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	c := s.dev.cores
	c.acquire(s.wake)
	defer c.release()
	ops := l.Ops()
	for i := range ops {
		op := &ops[i]
		if op.Kind == tensorops.KindAllReduce {
			err = s.collective(op)
		} else {
			err = s.exec.do(op)
		}
		if err != nil {
			return fmt.Errorf("%s: %v: %w", s.name, op, err)
		}
	}
	return nil
}

// collective waits for the peers without holding a core.
func (s *stream) collective(op *tensorops.Op) (err error) {
	c := s.dev.cores
	c.release()
	defer c.acquire(s.wake)
	defer func() {
		if v := recover(); v != nil { // in the group's code, not the device's
			err = panicError(v)
		}
	}()
	ch := make(chan error, 1)
	op.Group.Start(op, func(err error) { ch <- err })
	return <-ch
}
