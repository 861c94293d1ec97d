package cuda

import (
	"runtime"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
)

// owner is the thread that has the device's context and launches for all streams. It
// never waits for the device, but where memory is given back.
type owner struct {
	mu     sync.Mutex
	work   sync.Cond
	calls  []func()  // one for each goroutine that waits in call
	ready  []*stream // with something to launch, each once
	closed bool
	ended  chan struct{}
}

// newOwner starts the thread; begin makes the context current there, end takes it away.
func newOwner(begin func() error, end func()) (*owner, error) {
	o := &owner{ended: make(chan struct{})}
	o.work.L = &o.mu
	begun := make(chan error)
	go func() {
		defer close(o.ended)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err := begin()
		begun <- err
		if err == nil {
			o.run()
			end()
		}
	}()
	if err := <-begun; err != nil {
		<-o.ended
		return nil, err
	}
	return o, nil
}

// call runs f on the thread and waits. It must not be called from there.
func (o *owner) call(f func() error) error {
	result := make(chan error, 1)
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return tensorops.ErrClosed
	}
	o.calls = append(o.calls, func() { result <- f() })
	o.mu.Unlock()
	o.work.Signal()
	return <-result
}

// wake makes the thread look at a stream.
func (o *owner) wake(s *stream) {
	o.mu.Lock()
	if !s.awake {
		s.awake = true
		o.ready = append(o.ready, s)
	}
	o.mu.Unlock()
	o.work.Signal()
}

// close ends the thread, when all calls have been answered. No stream may be left.
func (o *owner) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.work.Signal()
	<-o.ended
}

func (o *owner) run() {
	for {
		call, s := o.next()
		switch {
		case call != nil:
			call()
		case s != nil:
			s.advance()
		default:
			return
		}
	}
}

// next waits for something to do; nothing when the owner was closed.
func (o *owner) next() (func(), *stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.calls) == 0 && len(o.ready) == 0 && !o.closed {
		o.work.Wait()
	}
	if len(o.calls) > 0 {
		f := o.calls[0]
		o.calls = append(o.calls[:0], o.calls[1:]...)
		return f, nil
	}
	if len(o.ready) > 0 {
		s := o.ready[0]
		o.ready = append(o.ready[:0], o.ready[1:]...)
		s.awake = false
		return nil, s
	}
	return nil, nil
}
