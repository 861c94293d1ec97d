package telemetry

import (
	"math"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	var m Meter
	if m.TokensPerS() != 0 || m.Remaining(10) != 0 {
		t.Errorf("before the first step: %g tokens/s, %v left", m.TokensPerS(), m.Remaining(10))
	}
	m.Add(0, 100)
	if m.TokensPerS() != 0 {
		t.Errorf("in no time: %g tokens/s", m.TokensPerS())
	}

	m = Meter{}
	for range 5 {
		m.Add(500*time.Millisecond, 1000)
	}
	if got := m.TokensPerS(); math.Abs(got-2000) > 1e-6 {
		t.Errorf("an even run: %g tokens/s, want 2000", got)
	}
	if got := m.Remaining(10); (got - 5*time.Second).Abs() > time.Microsecond {
		t.Errorf("an even run: %v left, want 5s", got)
	}
	if got := m.Remaining(0); got != 0 {
		t.Errorf("no steps left, but %v", got)
	}
	if got := m.Remaining(math.MaxInt); got != math.MaxInt64 {
		t.Errorf("a run without end: %v left", got)
	}
}

// One slow step is damped and forgotten; a lasting change is followed.
func TestMeterFollows(t *testing.T) {
	var m Meter
	add := func(n int, took time.Duration) time.Duration {
		for range n {
			m.Add(took, 1000)
		}
		return m.Remaining(1)
	}
	add(50, time.Second)
	if got := add(1, 11*time.Second); got < 1900*time.Millisecond || got > 2100*time.Millisecond {
		t.Errorf("after one step of 11 s: %v a step, want 2s", got)
	}
	if got := add(50, time.Second); got > 1010*time.Millisecond {
		t.Errorf("50 steps later: %v a step, want 1s", got)
	}
	if got := add(50, 3*time.Second); got < 2980*time.Millisecond {
		t.Errorf("after 50 steps of 3 s: %v a step", got)
	}
}
