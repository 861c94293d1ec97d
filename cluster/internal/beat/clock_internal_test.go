package beat

import (
	"testing"
	"time"
)

// TestClock: the beat with the shortest round trip determines how far the other clock is ahead.
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
		back := answered.Add(way.back * time.Millisecond)
		c.add(back, back.Sub(sent), came.Add(ahead), answered.Add(ahead))
	}
	if offset, trip := c.Estimate(); trip != 3*time.Millisecond || (offset-ahead).Abs() > trip/2 {
		t.Errorf("offset %v, round trip %v", offset, trip)
	}
}

// TestClockIsSet: when either clock is set, earlier beats no longer count, and neither does a beat during the change, because
// one with a negative round trip would count as the best for a long time.
func TestClockIsSet(t *testing.T) {
	const way = 2 * time.Millisecond
	start := time.Unix(1000, 0)
	for name, set := range map[string]struct{ here, there time.Duration }{
		"here back": {here: -time.Hour}, "here forward": {here: time.Minute}, "there back": {there: -time.Second},
		"there forward": {there: 30 * time.Second},
	} {
		var c Clock
		for i := range 5 {
			back := start.Add(time.Duration(i) * time.Second)
			c.add(back, 2*way, back.Add(-way), back.Add(-way))
		}
		during := start.Add(5 * time.Second)
		c.add(during.Add(set.here), 2*way, during.Add(-way), during.Add(-way).Add(set.there))
		if set.there != 0 {
			if offset, trip := c.Estimate(); offset != 0 || trip != 2*way {
				t.Errorf("%s: during it the offset is %v, the round trip %v", name, offset, trip)
			}
		}
		back := start.Add(6 * time.Second)
		c.add(back.Add(set.here), 3*way, back.Add(-way).Add(set.there), back.Add(-way).Add(set.there))
		want := set.there - set.here
		if offset, trip := c.Estimate(); trip < 0 || (offset-want).Abs() > trip {
			t.Errorf("%s: the offset is %v, the round trip %v; want %v", name, offset, trip, want)
		}
	}
}
