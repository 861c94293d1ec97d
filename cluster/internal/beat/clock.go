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

// add adds the times of a beat and its answer: when the answer arrived by this process's clock, and
// how long that took, by the monotonic clock; when the beat came and was answered by the other clock.
//
// Either clock may have been set meanwhile. If the other clock was set during the beat, its times
// have a negative difference or one longer than the round trip, and the beat is ignored. If the
// offset contradicts the best one so far by more than round trips and drift explain, a clock was set
// before this beat, and earlier beats no longer count.
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

// Estimate returns the offset, and the round trip of the beat that measured it. The offset's error is
// at most half the round trip. Before the first beat both are 0.
func (c *Clock) Estimate() (offset, roundTrip time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := c.best()
	return best.offset, best.roundTrip
}

// best returns the beat with the shortest round trip, or the zero sample. mu is held.
func (c *Clock) best() (best sample) {
	for i, s := range c.last[:min(c.n, clockBeats)] {
		if i == 0 || s.roundTrip < best.roundTrip {
			best = s
		}
	}
	return best
}
