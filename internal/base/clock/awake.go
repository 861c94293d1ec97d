package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// awakeTick is how often an Awake notes that the process runs.
	awakeTick = 250 * time.Millisecond
	// awakeGap is the shortest time without a note that counts as a freeze. It is longer than a busy machine delays a tick.
	awakeGap = 3 * awakeTick
	// limitFreezes is how many of the last freezes are remembered. An older one counts as time awake.
	limitFreezes = 256
)

// Awake measures how long this process has been awake: time in which the host slept, the virtual machine was paused or
// the process was stopped does not count. A wait for another process must not count a time in which this process could
// not hear it. A nil Awake counts all time.
type Awake struct {
	now func() time.Time

	mu      sync.Mutex
	seen    time.Time // when the process was last known to run
	freezes []freeze  // in order
	quit    chan struct{}
	ended   chan struct{}
}

// freeze is a time in which the process did not run.
type freeze struct{ from, to time.Time }

// NewAwake starts to watch. Call Close at the end.
func NewAwake() *Awake {
	a := newAwake(time.Now)
	a.quit, a.ended = make(chan struct{}), make(chan struct{})
	go func() { // ends with Close
		defer close(a.ended)
		tick := time.NewTicker(awakeTick)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				a.mu.Lock()
				a.note()
				a.mu.Unlock()
			case <-a.quit:
				return
			}
		}
	}()
	return a
}

func newAwake(now func() time.Time) *Awake { return &Awake{now: now, seen: now()} }

// Close stops watching. Later measurements take every pause between two calls for a freeze.
func (a *Awake) Close() {
	if a == nil {
		return
	}
	close(a.quit)
	<-a.ended
}

// note notes that the process runs, and the freeze that has just ended, if there was one. mu is held.
func (a *Awake) note() time.Time {
	now := a.now()
	if from := a.seen.Add(awakeTick); now.Sub(a.seen) > awakeGap {
		if a.freezes = append(a.freezes, freeze{from, now}); len(a.freezes) > limitFreezes {
			a.freezes = slices.Delete(a.freezes, 0, 1)
		}
	}
	a.seen = now
	return now
}

// Since returns how long the process has been awake since a moment that it noted with time.Now.
func (a *Awake) Since(t time.Time) time.Duration {
	if a == nil {
		return time.Since(t)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.note()
	d := now.Sub(t)
	for _, f := range slices.Backward(a.freezes) {
		if !f.to.After(t) {
			break
		}
		from := f.from
		if from.Before(t) {
			from = t
		}
		d -= f.to.Sub(from)
	}
	return max(d, 0)
}

// Of returns how long the process was awake within the last d.
func (a *Awake) Of(d time.Duration) time.Duration {
	if a == nil || d <= 0 {
		return d
	}
	return a.Since(a.now().Add(-d))
}

// Frozen returns how long the last freeze was and how long ago it ended; 0, 0: there was none.
func (a *Awake) Frozen() (took, ago time.Duration) {
	if a == nil {
		return 0, 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.note()
	if len(a.freezes) == 0 {
		return 0, 0
	}
	f := a.freezes[len(a.freezes)-1]
	return f.to.Sub(f.from), now.Sub(f.to)
}

// Sleep waits until the process has been awake for d. It returns early, with the cause, when ctx ends.
func (a *Awake) Sleep(ctx context.Context, d time.Duration) error {
	began := time.Now()
	if a != nil {
		a.mu.Lock()
		began = a.note()
		a.mu.Unlock()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			left := d - a.Since(began)
			if left <= 0 {
				return nil
			}
			timer.Reset(left)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WithTimeout is context.WithTimeout, but counts only time awake.
func (a *Awake) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if a == nil {
		return context.WithTimeout(parent, d)
	}
	ctx, cancel := context.WithCancelCause(parent)
	go func() { // ends with ctx
		if a.Sleep(ctx, d) == nil {
			cancel(context.DeadlineExceeded)
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
