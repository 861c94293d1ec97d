package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAwake: time in which the process did not run does not count, whoever notices the freeze first.
func TestAwake(t *testing.T) {
	start := time.Now()
	now := start
	a := newAwake(func() time.Time { return now })
	run := func(d time.Duration) { // the process runs and ticks
		for end := now.Add(d); now.Before(end); {
			now = now.Add(awakeTick)
			a.mu.Lock()
			a.note()
			a.mu.Unlock()
		}
	}
	want := func(what string, since time.Time, d time.Duration) {
		t.Helper()
		if got := a.Since(since); (got - d).Abs() > awakeTick {
			t.Errorf("%s: awake for %v, want %v", what, got, d)
		}
		if got := a.Of(now.Sub(since)); (got - d).Abs() > awakeTick {
			t.Errorf("%s: awake for %v of %v, want %v", what, got, now.Sub(since), d)
		}
	}
	run(10 * time.Second)
	want("no freeze", start, 10*time.Second)
	now = now.Add(awakeGap) // a late tick is no freeze
	want("a late tick", start, 10*time.Second+awakeGap)
	now = now.Add(15 * time.Minute)
	want("as soon as it thaws", start, 10*time.Second+awakeGap)
	thawed := now
	run(2 * time.Second)
	want("after a thaw", start, 12*time.Second+awakeGap)
	want("since the thaw", thawed, 2*time.Second)
	want("since the middle of the freeze", thawed.Add(-time.Minute), 2*time.Second)
	if took, ago := a.Frozen(); (took-15*time.Minute).Abs() > awakeTick || ago != 2*time.Second {
		t.Errorf("frozen for %v, %v ago", took, ago)
	}
	now = now.Add(time.Hour)
	want("a second freeze", thawed, 2*time.Second)
	for range limitFreezes { // the list is bounded
		run(awakeTick)
		now = now.Add(time.Hour)
	}
	if a.Since(thawed); len(a.freezes) != limitFreezes {
		t.Errorf("it remembers %d freezes, the limit is %d", len(a.freezes), limitFreezes)
	}
	var none *Awake
	if d := none.Of(time.Second); d != time.Second {
		t.Errorf("without an Awake, a second is %v", d)
	}
}

// TestAwakeWaits: a wait ends when the process has been awake for its time, or with its context.
func TestAwakeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAwake()
		began := time.Now()
		if err := a.Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("it slept %v: %v", time.Since(began), err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Sleep(ended, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		a.Close()

		a = newAwake(time.Now) // the test notes that the process runs
		stop, stopped := make(chan struct{}), make(chan struct{})
		began = time.Now()
		go func() { // ends with stop
			defer close(stopped)
			tick := time.NewTicker(awakeTick)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					if froze := time.Since(began); froze > 30*time.Second && froze < 10*time.Minute {
						continue
					}
					a.Since(began)
				case <-stop:
					return
				}
			}
		}()
		ctx, cancel := a.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		if took := time.Since(began); took < 10*time.Minute || took > 10*time.Minute+40*time.Second {
			t.Errorf("a minute with a freeze from second 30 to minute 10 took %v", took)
		}
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("it ended with %v", context.Cause(ctx))
		}
		close(stop)
		<-stopped
	})
}
