package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// stream executes lists in order. The owner's thread launches them, in flights; the
// stream's own goroutine waits for each flight to land and reports.
type stream struct {
	name  string
	dev   *Device
	arena *arena
	awake bool // among the owner's ready streams; guarded by owner.mu

	handle driver.Stream
	fault  driver.Address
	exec   exec
	copies copies
	all    []*flight
	idle   chan *flight // capacity LimitFlights, as the next
	flying chan *flight // in the order of their launch

	mu     sync.Mutex
	queue  []submission
	spare  []*tensorops.List
	closed bool
	ending bool // flying is closed
	held   bool // a flight is being launched, or has to land before the next is launched
	broken error
	ended  chan struct{}

	// run is the owner's while it launches, and the stream's own goroutine's when a flight
	// lands that the stream is held for.
	run run
}

type submission struct {
	list *tensorops.List
	done func(error)
}

// newStream makes a stream. One that the driver refuses to make is broken: it reports
// that for every list.
func newStream(d *Device, name string) *stream {
	s := &stream{
		name:   name,
		dev:    d,
		arena:  d.memory.newArena(name, d.owner.call),
		idle:   make(chan *flight, LimitFlights),
		flying: make(chan *flight, LimitFlights),
		ended:  make(chan struct{}),
	}
	direct := func(f func() error) error { return f() }
	s.exec = exec{
		processors:  d.gpu.Processors,
		tensorCores: multipliesBF16(d.target),
		driver:      d.driver,
		modules:     d.modules,
		graphs:      newGraphs(),
		temporary:   d.memory.newArena(name+" (scratch)", direct),
		blas:        &d.blas,
	}
	s.copies = copies{driver: d.driver, landing: d.memory.newArena(name+" (copies)", direct)}
	if err := d.owner.call(s.begin); err != nil {
		s.broken = fmt.Errorf("%s: %w", name, err)
		close(s.ended)
		return s
	}
	go s.report()
	return s
}

// begin makes what the stream has of the driver's. It runs on the owner's thread.
func (s *stream) begin() (err error) {
	d := s.dev.driver
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if s.handle, err = d.NewStream(); err != nil {
		return err
	}
	if s.fault, err = d.Alloc(faultBytes); err != nil {
		return err
	}
	if s.exec.variables.at, err = d.Alloc(LimitMasks * variableBytes); err != nil {
		return err
	}
	if s.dev.blas.isThere() {
		if s.exec.workspace, err = d.Alloc(workspaceBytes); err != nil {
			return err
		}
	}
	s.exec.stream, s.exec.fault = s.handle, uint64(s.fault)
	s.copies.kernels = s.handle
	if err := s.copies.begin(); err != nil {
		return err
	}
	for range LimitFlights {
		f, err := newFlight(d, s.handle, s.copies.stream)
		if err != nil {
			return err
		}
		s.all = append(s.all, f)
		s.idle <- f
	}
	return nil
}

// end gives it back. It runs on the owner's thread, when nothing flies any more.
func (s *stream) end() {
	d := s.dev.driver
	for _, f := range s.all {
		f.close()
	}
	s.exec.graphs.close(d)
	s.copies.end()
	// What cannot be given back here ends with the context.
	for _, at := range []driver.Address{s.fault, s.exec.variables.at, s.exec.workspace} {
		if at != 0 {
			_ = d.Free(at)
		}
	}
	if s.handle != 0 {
		_ = d.EndStream(s.handle)
	}
	s.arena.close()
	s.exec.temporary.close()
}

func (s *stream) Arena() tensorops.Arena { return s.arena }

func (s *stream) NewList() *tensorops.List {
	s.arena.hold()
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
	err := s.broken
	switch {
	case err != nil:
	case s.closed:
		err = fmt.Errorf("%s: %w", s.name, tensorops.ErrClosed)
	case len(s.queue) >= tensorops.LimitStreamQueue:
		err = fmt.Errorf("%s: %w: %d lists wait", s.name, tensorops.ErrQueueFull, len(s.queue))
	default:
		s.queue = append(s.queue, submission{l, done})
	}
	s.mu.Unlock()
	if err != nil {
		s.finish(submission{l, done}, err)
		return
	}
	s.dev.owner.wake(s)
}

// Close lets what was launched end; lists that wait fail with ErrClosed.
func (s *stream) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.dev.owner.wake(s)
	<-s.ended
	s.dev.forget(s)
}

// advance launches as much as it may. It runs on the owner's thread.
func (s *stream) advance() {
	for {
		var f *flight
		select {
		case f = <-s.idle:
		default:
			return // the next to land comes back here
		}
		if !s.next() {
			s.idle <- f
			return
		}
		if len(s.idle) == LimitFlights-1 { // nothing else flies: all copies are made
			s.copies.leaving = s.copies.leaving[:0]
		}
		s.launch(f)
		if f.onItsOwn {
			s.release(true)
		}
		s.flying <- f
	}
}

// next takes the list to go on with, and holds the stream for it; false if there is
// none, or the outcome of a flight has to be known first.
func (s *stream) next() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.held:
		return false
	case s.run.sub.list != nil: // the next part of a list
	case s.closed:
		if !s.ending {
			s.ending = true
			close(s.flying)
		}
		return false
	case len(s.queue) == 0:
		return false
	default:
		s.run.sub = s.queue[0]
		s.queue = append(s.queue[:0], s.queue[1:]...)
	}
	s.held = true
	return true
}

// release lets the owner go on with the stream: with the next list if this one is over.
func (s *stream) release(over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if over {
		s.run.reset()
	}
	s.held = false
}

// report is the stream's own goroutine: it sees flights land, and ends the stream.
func (s *stream) report() {
	defer close(s.ended)
	runtime.LockOSThread() // for good: the context stays the thread's
	useErr := s.dev.driver.Use(s.dev.context)
	for f := range s.flying {
		s.landed(f, useErr)
	}
	s.mu.Lock()
	waiting := s.queue // nobody adds to it once closed is set
	s.queue = nil
	s.mu.Unlock()
	for _, sub := range waiting {
		s.finish(sub, fmt.Errorf("%s: %w", s.name, tensorops.ErrClosed))
	}
	_ = s.dev.owner.call(func() error { s.end(); return nil }) // the owner is there as long as a stream is
	_ = s.dev.driver.Use(0)                                    // the thread ends in any case
}

// landed waits for a flight, and reports its list if that is over.
func (s *stream) landed(f *flight, err error) {
	if err == nil {
		err = s.outcome(f)
	} else { // without a context here, the owner has to wait
		err = errors.Join(err, s.dev.owner.call(f.wait))
	}
	sub, over, onItsOwn := f.sub, f.last || err != nil, f.onItsOwn
	f.reset()
	s.exec.temporary.release()
	s.idle <- f
	if !onItsOwn {
		s.release(over)
	}
	if over {
		s.finish(sub, err)
	}
	s.dev.owner.wake(s)
}

// outcome waits for a flight and says what became of it.
func (s *stream) outcome(f *flight) error {
	if err := f.wait(); err != nil {
		if f.err != nil {
			return f.err // what went wrong first
		}
		return fmt.Errorf("%s: %w", s.name, err)
	}
	f.land()
	if f.err != nil {
		return f.err
	}
	if err := f.check(); err != nil {
		return s.failed(f.checked, err)
	}
	if f.collective != nil {
		if err := collect(f.collective); err != nil {
			return s.failed(f.cause, err)
		}
	}
	return nil
}

// failed is the error of an operation.
func (s *stream) failed(op *tensorops.Op, err error) error {
	return fmt.Errorf("%s: %v: %w", s.name, op, err)
}

// finish takes a list back, executed or not: either way, what it freed is free.
func (s *stream) finish(sub submission, err error) {
	sub.list.Complete()
	sub.list.Reset()
	s.mu.Lock()
	s.spare = append(s.spare, sub.list)
	s.mu.Unlock()
	s.arena.release()
	sub.done(err)
}
