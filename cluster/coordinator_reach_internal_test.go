package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestUnreachables: an unreachable worker is logged once, until it joins, has another address, or asks no more. The list of
// such workers is bounded.
func TestUnreachables(t *testing.T) {
	now := time.Unix(1000, 0)
	why := errors.New("no")
	var u unreachables
	for i, step := range []struct {
		after   time.Duration
		name    string
		address string
		joins   bool
		news    bool
	}{
		{0, "a", "x:1", false, true},
		{2 * time.Second, "a", "x:1", false, false},
		{0, "b", "x:2", false, true},
		{2 * time.Second, "a", "x:3", false, true},
		{0, "a", "", true, false},
		{0, "a", "x:3", false, true},
		{askedTime, "b", "x:2", false, false}, // it asks again, after a while
		{askedTime, "a", "x:3", false, true},  // which was forgotten then
	} {
		now = now.Add(step.after)
		if step.joins {
			u.forget(step.name)
			continue
		}
		if news := u.note(step.name, step.address, why, now); news != step.news {
			t.Errorf("step %d: news %v, want %v", i, news, step.news)
		}
	}
	if all := u.list(now); len(all) != 1 || all[0].Name != "a" || all[0].Address != "x:3" || all[0].Error != "no" {
		t.Errorf("%+v", all)
	}
	if all := u.list(now.Add(askedTime)); len(all) != 0 {
		t.Errorf("of those that ask no more: %+v", all)
	}
	rapid.Check(t, func(t *rapid.T) {
		var u unreachables
		at := now
		for range rapid.IntRange(1, 3*limitUnreachable).Draw(t, "asks") {
			at = at.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "ms")) * time.Millisecond)
			u.note(fmt.Sprint("w", rapid.IntRange(0, 2*limitUnreachable).Draw(t, "worker")), "x:1", why, at)
			if len(u.all) > limitUnreachable {
				t.Fatalf("%d are known", len(u.all))
			}
		}
	})
}
