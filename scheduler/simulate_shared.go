package scheduler

import (
	"fmt"
	"math"
)

// sharedCores advances time if ranks share cores. Then an action's duration depends on what else
// runs. So the work left of each action is tracked, and the action with the least work left ends
// first.
type sharedCores struct {
	share func(running int) float64
	now   float64
	left  []float64 // by rank: work left of the running action; infinite: none runs
	busy  []float64 // by rank
	// Of the running actions, recounted when one has started or ended:
	counted     bool
	running     int     // ranks
	least, rate float64 // least work left, and the speed of each
}

func newSharedCores(share func(running int) float64, busy []float64) *sharedCores {
	c := &sharedCores{share: share, left: make([]float64, len(busy)), busy: busy}
	for r := range c.left {
		c.left[r] = math.Inf(1)
	}
	return c
}

// endBy returns the ranks whose actions end next, if they end no later than the next event. Their
// end is the new time.
func (c *sharedCores) endBy(at float64) (ended []int, err error) {
	if err := c.count(); err != nil || c.running == 0 {
		return nil, err
	}
	step := c.least / c.rate
	if at-c.now < step {
		return nil, nil
	}
	for r, left := range c.left {
		if left <= c.least {
			ended = append(ended, r)
		}
	}
	c.pass(step)
	for _, r := range ended {
		c.left[r] = math.Inf(1)
	}
	return ended, nil
}

// begin gives a rank work from a given time on. It returns that time as the sum of steps yields it.
// No running action has ended by then.
func (c *sharedCores) begin(at float64, rank int, work float64) float64 {
	for c.now < at {
		c.pass(at - c.now)
	}
	c.left[rank], c.counted = work, false
	return c.now
}

func (c *sharedCores) count() error {
	if c.counted {
		return nil
	}
	c.counted, c.running, c.least, c.rate = true, 0, math.Inf(1), 0
	for _, left := range c.left {
		if !math.IsInf(left, 1) {
			c.running++
			c.least = min(c.least, left)
		}
	}
	if c.running == 0 {
		return nil
	}
	c.rate = c.share(c.running)
	if !(c.rate > 0) || math.IsInf(c.rate, 1) {
		return fmt.Errorf("%w: Share(%d) = %v: want a finite speed above 0", ErrCosts, c.running, c.rate)
	}
	return nil
}

func (c *sharedCores) pass(step float64) {
	c.now, c.counted = c.now+step, false
	for r, left := range c.left {
		if !math.IsInf(left, 1) {
			c.busy[r] += step
			c.left[r] -= step * c.rate
		}
	}
}
