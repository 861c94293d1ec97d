package telemetry

import (
	"math"
	"time"
)

// Meter smooths the speed of a run: each step weighs a tenth less than the one after it. The zero Meter is ready to
// use.
type Meter struct {
	steps, seconds, tokens float64 // weighted sums
}

// Add counts one step.
func (m *Meter) Add(took time.Duration, tokens int64) {
	const keep = 0.9
	m.steps = m.steps*keep + 1
	m.seconds = m.seconds*keep + took.Seconds()
	m.tokens = m.tokens*keep + float64(tokens)
}

// TokensPerS returns the smoothed speed in tokens per second; 0: not known yet.
func (m *Meter) TokensPerS() float64 {
	if m.seconds <= 0 {
		return 0
	}
	return m.tokens / m.seconds
}

// Remaining estimates the duration of n more steps; 0: not known yet.
func (m *Meter) Remaining(steps int) time.Duration {
	if m.steps == 0 || steps <= 0 {
		return 0
	}
	ns := float64(steps) * m.seconds / m.steps * float64(time.Second)
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
