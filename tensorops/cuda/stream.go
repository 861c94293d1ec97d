package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// stream executes lists in order. The owner's thread launches them, in batches; the
// stream's own goroutine waits for each batch to complete and reports.
type stream struct {
	name  string
	dev   *Device
	arena *tensorops.Pool
	queue *tensorops.Queue
	awake bool // among the owner's ready streams; guarded by owner.mu

	handle   driver.Stream
	fault    driver.Address
	exec     exec
	copies   copies
	ids      checkedIDs
	tables   knownTables
	all      []*launchBatch
	idle     chan *launchBatch // capacity limitLaunchBatches, as the next
	launched chan *launchBatch // in the order of their launch

	mu     sync.Mutex
	ending bool // launched is closed
	held   bool // a batch is being launched, or has to complete before the next is launched
	ended  chan struct{}

	// run is the owner's while it launches, and the stream's own goroutine's when a batch
	// completes that the stream is held for.
	run run
}

// newStream makes a stream. One that the driver refuses to make is broken: it reports
// that for every list.
func newStream(d *Device, name string) *stream {
	s := &stream{
		name:     name,
		dev:      d,
		arena:    d.memory.NewArenaVia(name, d.owner.call),
		idle:     make(chan *launchBatch, limitLaunchBatches),
		launched: make(chan *launchBatch, limitLaunchBatches),
		ended:    make(chan struct{}),
	}
	s.queue = tensorops.NewQueue(name, s.arena, nil)
	s.exec = exec{
		processors:  d.gpu.Processors,
		tensorCores: multipliesBF16(d.target),
		driver:      d.driver,
		modules:     d.modules,
		graphs:      newGraphs(),
		temporary:   d.memory.NewArena(name + " (scratch)"),
		work:        &d.work,
		blas:        &d.blas,
		fuseGELU:    d.blas.gelu.fuses(d.target),
	}
	s.copies = copies{driver: d.driver, arriving: d.memory.NewArena(name + " (copies)")}
	if err := d.owner.call(s.begin); err != nil {
		s.queue.Close(err)
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
	if s.fault, err = d.Alloc(faultBytes + routeBytes); err != nil {
		return err
	}
	if s.exec.variables.at, err = d.Alloc(limitMasks * variableBytes); err != nil {
		return err
	}
	if s.dev.blas.isThere() {
		if s.exec.workspace, err = d.Alloc(workspaceBytes); err != nil {
			return err
		}
	}
	s.exec.stream, s.exec.fault, s.exec.badRoute = s.handle, uint64(s.fault), uint64(s.fault)+faultBytes
	if err := d.Clear(driver.Address(s.exec.badRoute), routeBytes/4, s.handle); err != nil {
		return err
	}
	s.copies.kernels = s.handle
	if err := s.copies.begin(); err != nil {
		return err
	}
	for range limitLaunchBatches {
		f, err := newLaunchBatch(d, s.handle, s.copies.stream)
		if err != nil {
			return err
		}
		s.all = append(s.all, f)
		s.idle <- f
	}
	return nil
}

// end gives it back. It runs on the owner's thread, when nothing runs any more.
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
	s.arena.Trim()
	s.exec.temporary.Close()
}

func (s *stream) Arena() tensorops.Arena { return s.arena }

func (s *stream) NewList() *tensorops.List { return s.queue.NewList() }

func (s *stream) Submit(l *tensorops.List, done func(error)) {
	if s.queue.Submit(l, done) {
		s.dev.owner.wake(s)
	}
}

// QueuesLists is tensorops.Queuer's: as many as can be launched, and one that follows them.
func (s *stream) QueuesLists() int { return limitLaunchBatches + 1 }

// Close lets what was launched end; lists that wait fail with ErrClosed. What the arena
// keeps is given back.
func (s *stream) Close() {
	s.queue.Close(tensorops.ErrClosed)
	s.dev.owner.wake(s)
	<-s.ended
	s.dev.forget(s)
}

// advance launches as much as it may. It runs on the owner's thread.
func (s *stream) advance() {
	for {
		var f *launchBatch
		select {
		case f = <-s.idle:
		default:
			return // the next to complete comes back here
		}
		if !s.next() {
			s.idle <- f
			return
		}
		if len(s.idle) == limitLaunchBatches-1 { // nothing else runs: all copies are made
			s.copies.leaving = s.copies.leaving[:0]
		}
		s.launch(f)
		if f.onItsOwn {
			s.release(true)
		}
		s.launched <- f
	}
}

// next takes the list to go on with, and holds the stream for it; false if there is
// none, or the outcome of a batch has to be known first.
func (s *stream) next() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		return false
	}
	if s.run.sub.List == nil { // no list has parts left
		sub, ok := s.queue.Poll()
		if !ok {
			if s.queue.Closed() && !s.ending {
				s.ending = true
				close(s.launched)
			}
			return false
		}
		s.run.sub = sub
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

// report is the stream's own goroutine: it sees batches complete, and ends the stream.
func (s *stream) report() {
	defer close(s.ended)
	runtime.LockOSThread() // for good: the context stays the thread's
	useErr := s.dev.driver.Use(s.dev.context)
	for f := range s.launched {
		s.completed(f, useErr)
	}
	s.queue.Drain()
	_ = s.dev.owner.call(func() error { s.end(); return nil }) // the owner is there as long as a stream is
	_ = s.dev.driver.Use(0)                                    // the thread ends in any case
}

// completed waits for a batch, and reports its list if that is over.
func (s *stream) completed(f *launchBatch, err error) {
	if err == nil {
		err = s.outcome(f)
	} else { // without a context here, the owner has to wait
		err = errors.Join(err, s.dev.owner.call(f.wait))
	}
	sub, over, onItsOwn := f.sub, f.last || err != nil, f.onItsOwn
	s.exec.temporary.Release(f.hold)
	f.reset()
	s.dev.work.tell()
	s.idle <- f
	if !onItsOwn {
		s.release(over)
	}
	if over {
		s.queue.Finish(sub, err)
	}
	s.dev.owner.wake(s)
}

// outcome waits for a batch and says what became of it.
func (s *stream) outcome(f *launchBatch) error {
	if err := f.wait(); err != nil {
		if f.err != nil {
			return f.err // what went wrong first
		}
		return fmt.Errorf("%s: %w", s.name, err)
	}
	f.deliver()
	if f.err != nil {
		return f.err
	}
	if err := f.checkRoutes(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
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
