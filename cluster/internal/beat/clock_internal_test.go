package beat

import (
	"testing"
	"time"
)

// TestClock: the beat with the shortest round trip says how far the other clock is ahead.
func TestClock(t *testing.T) {
	var c Clock
	if offset, trip := c.Estimate(); offset != 0 || trip != 0 {
		t.Errorf("without a beat: %v, %v", offset, trip)
	}
	start := time.Unix(1000, 0)
	ahead := 7 * time.Second
	for i, way := range []struct{ there, back time.Duration }{{50, 1}, {2, 1}, {1, 90}} {
		sent := start.Add(time.Duration(i) * time.Second)
		came := sent.Add(way.there * time.Millisecond)
		answered := came.Add(3 * time.Millisecond)
		c.add(sent, came.Add(ahead), answered.Add(ahead), answered.Add(way.back*time.Millisecond))
	}
	if offset, trip := c.Estimate(); trip != 3*time.Millisecond || (offset-ahead).Abs() > trip/2 {
		t.Errorf("offset %v, round trip %v", offset, trip)
	}
}
