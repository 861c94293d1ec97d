package ui

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestRoot: the drawing marks where the chain of waits ends; in a circle, the process that is silent.
func TestRoot(t *testing.T) {
	now := time.Unix(100, 0)
	at := func(name string, rank int, wait event.Wait, from string, heard float64) event.Snapshot {
		s := event.Snapshot{Actor: name, Rank: rank, Doing: event.Waiting, Wait: wait, From: from, Since: now.Add(-5 * time.Second)}
		if heard > 0 {
			s.Host, s.Heard = "host-"+name, now.Add(-time.Duration(heard*float64(time.Second)))
		}
		return s
	}
	scheduler := at("scheduler", -1, event.WaitStages, "a", 0)
	for name, tc := range map[string]struct {
		actors []event.Snapshot
		root   string
		says   string
	}{
		"a chain":          {[]event.Snapshot{scheduler, at("a", 0, event.WaitActivation, "b", 0), at("b", 1, event.WaitNothing, "", 0)}, "b", "b is"},
		"a circle":         {[]event.Snapshot{scheduler, at("a", 0, event.WaitActivation, "b", 0.1), at("b", 1, event.WaitCredit, "a", 0.2)}, "", "a message between hosts has not arrived"},
		"a silent process": {[]event.Snapshot{scheduler, at("a", 0, event.WaitActivation, "b", 0.1), at("b", 1, event.WaitCredit, "a", 7)}, "b", "host-b, with b, has not been heard for 7.0 s"},
		"nothing":          {nil, "", ""},
	} {
		v := viewStatus(event.Status{Time: now, Actors: tc.actors}, nil)
		root := ""
		for _, l := range v.Links {
			if l.Root {
				root += l.Actor
			}
		}
		if root != tc.root || !strings.Contains(strings.Join(v.Chain, "\n"), tc.says) {
			t.Errorf("%s: the root is %q in %q, want %q with %q", name, root, v.Chain, tc.root, tc.says)
		}
	}
}
