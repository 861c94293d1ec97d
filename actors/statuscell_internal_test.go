package actors

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestObserved: what another process tells again is no move, however its times differ; the time that is told last counts.
func TestObserved(t *testing.T) {
	var moves atomic.Int64
	c := newStatusCell("stage 1", 1, &moves)
	begin := time.Now()
	s := event.Snapshot{Actor: "stage 1", Rank: 1, Step: 7, Doing: event.Waiting, Wait: event.WaitActivation, Host: "w1"}
	for i, d := range []time.Duration{0, time.Nanosecond, 3 * time.Millisecond, -2 * time.Millisecond, time.Minute} {
		s.Since, s.Heard = begin.Add(d), begin.Add(time.Duration(i)*time.Second)
		c.observe(s)
		if got := c.Load(); !got.Since.Equal(s.Since) || !got.Heard.Equal(s.Heard) {
			t.Errorf("%d: %v, heard %v; want %v, %v", i, got.Since, got.Heard, s.Since, s.Heard)
		}
	}
	if n := moves.Load(); n != 1 {
		t.Errorf("%d moves, want the first alone", n)
	}
	s.Held = 1
	if c.observe(s); moves.Load() != 2 {
		t.Errorf("a tensor more is held: %d moves, want 2", moves.Load())
	}
}
