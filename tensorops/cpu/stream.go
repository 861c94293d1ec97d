package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// stream executes lists in order in a goroutine of its own.
type stream struct {
	name  string
	dev   *Device
	arena *tensorops.Pool
	queue *tensorops.Queue
	exec  exec
	wake  chan struct{} // a core was granted
	ended chan struct{}
}

func newStream(d *Device, name string) *stream {
	s := &stream{name: name, dev: d, arena: d.memory.NewArena(name), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	s.queue = tensorops.NewQueue(name, s.arena, nil)
	s.exec = exec{dev: d}
	s.exec.job = &job{x: &s.exec, idle: make(chan struct{}, 1)}
	go s.run()
	return s
}

func (s *stream) Arena() tensorops.Arena { return s.arena }

func (s *stream) NewList() *tensorops.List { return s.queue.NewList() }

func (s *stream) Submit(l *tensorops.List, done func(error)) { s.queue.Submit(l, done) }

// Close also gives back what the pool keeps and makes the device forget the stream.
func (s *stream) Close() {
	s.queue.Close(tensorops.ErrClosed)
	<-s.ended
	s.arena.Trim()
	s.dev.mu.Lock()
	defer s.dev.mu.Unlock()
	s.dev.streams = slices.DeleteFunc(s.dev.streams, func(other *stream) bool { return other == s })
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
			if s.queue.Len() > 0 || c.posted.Load() > 0 || c.waiting.Load() > 0 {
				return
			}
			spin()
		}
	}
}

func (s *stream) run() {
	defer close(s.ended)
	for {
		s.linger()
		sub, ok := s.queue.Wait()
		if !ok {
			break
		}
		s.queue.Finish(sub, s.execute(sub.List))
	}
	s.queue.Drain()
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
		switch {
		case err == nil:
		case op.Kind == tensorops.KindCall: // it says itself what it is
			return fmt.Errorf("%s: %w", s.name, err)
		default:
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
