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

// add takes the times of a beat and its answer: when it was back by this process's clock, and how
// long it took, which no clock can change; when it came and was answered by the other's.
//
// Either clock may have been set. A beat during which the other was set, so that what passed
// there is negative or longer than all, says nothing. One whose offset contradicts the best one so
// far, by more than round trips and drift explain, came after a clock was set: earlier beats no
// longer count.
func (c *Clock) add(back time.Time, took time.Duration, came, answered time.Time) {
	there := answered.Sub(came)
	if there < 0 || there > took {
		return
	}
	s := sample{took - there, (came.Sub(back.Add(-took)) + answered.Sub(back)) / 2}
	c.mu.Lock()
	defer c.mu.Unlock()
	if best := c.best(); c.n > 0 && (s.offset-best.offset).Abs() > (s.roundTrip+best.roundTrip)/2+clockDrift {
		c.n = 0
	}
	c.last[c.n%clockBeats] = s
	c.n++
}

// Estimate is the offset, and the round trip of the beat that it is from: the error is at
// most half of that. Without any beat both are 0.
func (c *Clock) Estimate() (offset, roundTrip time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := c.best()
	return best.offset, best.roundTrip
}

// best is the beat with the shortest round trip; the zero sample: there is none. mu is held.
func (c *Clock) best() (best sample) {
	for i, s := range c.last[:min(c.n, clockBeats)] {
		if i == 0 || s.roundTrip < best.roundTrip {
			best = s
		}
	}
	return best
}
