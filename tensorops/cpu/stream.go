package cpu

import (
	"fmt"
	"slices"

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
	later []begun       // the list's collectives that go on beside it
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

func (s *stream) run() {
	defer close(s.ended)
	for {
		// Often the next list is microseconds away. Meanwhile nobody else may have a use for the core.
		c := s.dev.cores
		linger(func() bool { return s.queue.Len() > 0 || c.posted.Load() > 0 || c.waiting.Load() > 0 })
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
	defer func() {
		if failed, other := s.await(); err == nil && other != nil {
			err = fmt.Errorf("%s: %v: %w", s.name, failed, other)
		}
	}()
	ops := l.Ops()
	var done, number int // number: of the latest collective that was begun for later
	for i := 0; i < len(ops); i += done {
		op := &ops[i]
		done = 1
		switch op.Kind {
		case tensorops.KindCollective:
			b := begin(op)
			if op.Has(tensorops.FlagLater) {
				number++
				b.number = number
				s.later = append(s.later, b)
				continue
			}
			_, err = s.wait(b)
		case tensorops.KindAwait:
			await := s.await
			if one := op.Await().Number; one > 0 {
				await = func() (*tensorops.Op, error) { return s.awaitOne(one) }
			}
			if failed, other := await(); other != nil {
				op, err = failed, other
			}
		default:
			done, err = s.exec.next(ops[i:])
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

// begun is a collective under way.
type begun struct {
	op     *tensorops.Op
	number int // of tensorops.List.Begin; 0: the list waits for it at once
	result chan error
}

// begin starts a collective.
func begin(op *tensorops.Op) (b begun) {
	b = begun{op: op, result: make(chan error, 2)} // room for a panic after the result
	defer func() {
		if v := recover(); v != nil { // in the group's code, not the device's
			b.result <- panicError(v)
		}
	}()
	op.Group.Start(op, func(err error) { b.result <- err })
	return b
}

// await waits until all that was begun for later has ended.
func (s *stream) await() (failed *tensorops.Op, err error) {
	if len(s.later) == 0 {
		return nil, nil
	}
	failed, err = s.wait(s.later...)
	clear(s.later)
	s.later = s.later[:0]
	return failed, err
}

// awaitOne waits until one of those has ended; the others continue.
func (s *stream) awaitOne(number int) (failed *tensorops.Op, err error) {
	at := slices.IndexFunc(s.later, func(b begun) bool { return b.number == number })
	if at < 0 {
		return nil, nil
	}
	b := s.later[at]
	s.later = slices.Delete(s.later, at, at+1)
	return s.wait(b)
}

// wait waits for the peers without holding a core. It returns the first collective that failed.
func (s *stream) wait(all ...begun) (failed *tensorops.Op, err error) {
	s.dev.cores.release()
	defer s.dev.cores.acquire(s.wake)
	for _, b := range all {
		if e := <-b.result; e != nil && err == nil {
			failed, err = b.op, e
		}
	}
	return failed, err
}
