package cpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// cores shares a fixed number of cores among streams. A core is a token: a
// stream holds one while it executes a list, and helpers take those left over
// to work on ranges of operations in progress. A stream that waits for a token
// goes before every helper.
type cores struct {
	threads int
	waiting atomic.Int32  // streams waiting for a core
	posted  atomic.Int32  // len(jobs), readable without the lock
	posts   atomic.Uint64 // operations posted so far, as well

	mu     sync.Mutex
	free   int             // cores nobody uses
	queue  []chan struct{} // streams waiting for a core, first come first served
	jobs   []*job          // operations whose ranges may be taken
	parked []*helper       // helpers with nothing to do
	closed bool
	ended  sync.WaitGroup
}

// rangeFunc computes the range [lo, hi) of an operation.
type rangeFunc func(x *exec, lo, hi int)

// job is one operation split in ranges. It belongs to a stream's exec and is
// used again for every operation.
type job struct {
	x       *exec
	run     rangeFunc
	n       int
	grain   int
	next    atomic.Int64
	failure atomic.Pointer[workError]

	helpers atomic.Int32  // helpers inside; changed under cores.mu only
	awaited bool          // the stream waits for the last helper; under cores.mu
	idle    chan struct{} // capacity 1: the last helper's signal to an awaiting stream
}

// workError is a panic or an error inside a range.
type workError struct{ err error }

type helper struct{ wake chan struct{} }

func newCores(threads int) *cores {
	c := &cores{threads: threads, free: threads}
	for range threads - 1 {
		h := &helper{wake: make(chan struct{}, 1)}
		c.ended.Add(1)
		go c.help(h)
	}
	return c
}

func (c *cores) close() {
	c.mu.Lock()
	c.closed = true
	for _, h := range c.parked {
		h.wake <- struct{}{}
	}
	c.parked = nil
	c.mu.Unlock()
	c.ended.Wait()
}

// acquire waits for a core. wake is the stream's own channel of capacity 1.
func (c *cores) acquire(wake chan struct{}) {
	c.mu.Lock()
	if c.free > 0 {
		c.free--
		c.mu.Unlock()
		return
	}
	c.queue = append(c.queue, wake)
	c.waiting.Add(1)
	c.mu.Unlock()
	<-wake
}

// release gives a core back: to the stream that waits longest, else to a helper
// if there is work to help with.
func (c *cores) release() {
	c.mu.Lock()
	c.releaseLocked()
	c.mu.Unlock()
}

func (c *cores) releaseLocked() {
	if len(c.queue) > 0 {
		c.queue[0] <- struct{}{}
		c.queue = append(c.queue[:0], c.queue[1:]...)
		c.waiting.Add(-1)
		return
	}
	c.free++
	if len(c.jobs) > 0 {
		c.wakeHelper()
	}
}

// wakeHelper wakes one parked helper; mu is held.
func (c *cores) wakeHelper() {
	if k := len(c.parked) - 1; k >= 0 {
		c.parked[k].wake <- struct{}{}
		c.parked = c.parked[:k]
	}
}

// parallel runs an operation's ranges on the calling stream's core and on
// whatever cores are free.
func (c *cores) parallel(j *job, n, grain int, run rangeFunc) error {
	if n <= 0 {
		return nil
	}
	grain = max(grain, 1)
	if c.threads == 1 || n <= grain {
		run(j.x, 0, n)
		return nil
	}
	j.n, j.grain, j.run = n, grain, run
	j.next.Store(0)
	j.failure.Store(nil)
	c.mu.Lock()
	c.jobs = append(c.jobs, j)
	c.posted.Store(int32(len(c.jobs)))
	c.posts.Add(1)
	for range min(c.free, (n+grain-1)/grain-1) {
		c.wakeHelper()
	}
	c.mu.Unlock()

	for j.take(j.x) {
	}

	c.mu.Lock()
	for i, other := range c.jobs {
		if other == j {
			c.jobs = append(c.jobs[:i], c.jobs[i+1:]...)
			break
		}
	}
	c.posted.Store(int32(len(c.jobs)))
	// No helper enters once j is off the list.
	j.awaited = j.helpers.Load() > 0
	awaited := j.awaited
	c.mu.Unlock()
	if awaited {
		linger(func() bool { return j.helpers.Load() == 0 })
		<-j.idle
	}
	if f := j.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// take computes the next range; false when none is left.
func (j *job) take(x *exec) bool {
	lo := int(j.next.Add(int64(j.grain))) - j.grain
	if lo >= j.n {
		return false
	}
	defer j.recoverRange()
	j.run(x, lo, min(lo+j.grain, j.n))
	return true
}

// recoverRange turns a panic in a kernel into the operation's error and makes
// the others stop early.
func (j *job) recoverRange() {
	if v := recover(); v != nil {
		j.failure.CompareAndSwap(nil, &workError{panicError(v)})
		j.next.Store(int64(j.n))
	}
}

// panicError describes a panic with the place it came from.
func panicError(v any) error {
	if err, ok := v.(error); ok {
		if _, isRuntime := v.(runtime.Error); !isRuntime {
			return err
		}
	}
	return fmt.Errorf("panic: %v\n%s", v, debug.Stack())
}

// help is the life of a helper: with a free core and an operation in progress
// it takes ranges until they run out or a stream wants the core.
func (c *cores) help(h *helper) {
	defer c.ended.Done()
	var x exec // the helper's own scratch memory; the operation comes from the job
	for {
		j := c.join(h)
		if j == nil {
			return
		}
		x.op, x.dev, x.product, x.group, x.partial, x.byTap = j.x.op, j.x.dev, j.x.product, j.x.group, j.x.partial, j.x.byTap
		x.update, x.chain = j.x.update, j.x.chain
		for c.waiting.Load() == 0 && j.take(&x) {
		}
		x.op, x.update, x.chain = nil, narrowUpdate{}, nil
		c.leave(j)
	}
}

// join waits until there is both a core and an operation to help with; nil
// when the device closes.
func (c *cores) join(h *helper) *job {
	spun := false
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil
		}
		idle := c.free > 0 && len(c.queue) == 0
		if idle {
			for _, j := range c.jobs {
				if int(j.next.Load()) < j.n {
					c.free--
					j.helpers.Add(1)
					c.mu.Unlock()
					return j
				}
			}
		}
		if idle && !spun {
			// The next operation is often microseconds away. One whose last ranges are being computed is no
			// reason to look again.
			posts := c.posts.Load()
			c.mu.Unlock()
			spun = !linger(func() bool { return c.posts.Load() != posts })
			continue
		}
		c.parked = append(c.parked, h)
		c.mu.Unlock()
		<-h.wake
		spun = false
	}
}

// leave ends a helper's part in an operation and gives its core back.
func (c *cores) leave(j *job) {
	c.mu.Lock()
	if j.helpers.Add(-1) == 0 && j.awaited {
		j.awaited = false
		j.idle <- struct{}{}
	}
	c.releaseLocked()
	c.mu.Unlock()
}
