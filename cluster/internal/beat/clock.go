package beat

import (
	"sync"
	"time"
)

// Clock estimates how far another process's clock is ahead of this one's. It is safe for
// concurrent use.
type Clock struct {
	mu   sync.Mutex
	last [clockBeats]sample
	n    int
}

type sample struct{ roundTrip, offset time.Duration }

// add takes the four times of a beat and its answer: sent here, came there, answered
// there, and came back here.
func (c *Clock) add(sent, came, answered, back time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[c.n%clockBeats] = sample{back.Sub(sent) - answered.Sub(came), (came.Sub(sent) + answered.Sub(back)) / 2}
	c.n++
}

// Estimate is the offset, and the round trip of the beat that it is from: the error is at
// most half of that. Without any beat both are 0.
func (c *Clock) Estimate() (offset, roundTrip time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := c.last[0]
	for _, s := range c.last[:min(c.n, clockBeats)] {
		if s.roundTrip < best.roundTrip {
			best = s
		}
	}
	return best.offset, best.roundTrip
}
