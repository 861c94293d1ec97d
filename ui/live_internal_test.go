package ui

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
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
		"a chain": {[]event.Snapshot{scheduler, at("a", 0, event.WaitActivation, "b", 0), at("b", 1, event.WaitNothing, "", 0)}, "b",
			"b is"},
		"a circle": {[]event.Snapshot{scheduler, at("a", 0, event.WaitActivation, "b", 0.1), at("b", 1, event.WaitCredit, "a", 0.2)}, "",
			"a message between hosts has not arrived"},
		"a silent process": {[]event.Snapshot{scheduler, at("a", 0, event.WaitActivation, "b", 0.1), at("b", 1, event.WaitCredit, "a", 7)}, "b",
			"host-b, which runs b, has not reported for 7.0 s"},
		"nothing": {nil, "", ""},
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

// TestLiveWords: the page of a live run says an event in the words of events.jsonl.
func TestLiveWords(t *testing.T) {
	l := &live{ended: make(chan struct{})}
	all := []troupe.Event{
		troupe.CheckpointEvent{Step: 3, Dir: "runs/a/step-3", Took: time.Second},
		troupe.PauseEvent{Step: 3, Paused: true},
		troupe.ChangeEvent{Change: troupe.Change{Kind: troupe.ChangeRate, Step: 4, LR: 0.2, MinLR: 0.1}},
		troupe.ChangeEvent{Change: troupe.Change{Kind: troupe.ChangeStop, Step: 2}, Err: errors.New("step 2 has ended")},
		troupe.RestartEvent{Err: errors.New("worker w2 failed"), Restart: 1, Most: 3},
		troupe.StallEvent{Quiet: time.Minute},
		troupe.WarningEvent{Text: "the disk is nearly full"},
	}
	for _, e := range all {
		l.event(e)
	}
	end := troupe.EndEvent{Result: troupe.Result{Step: 4, Steps: 9, Stopped: true}}
	l.end(end.Result, end.Err)
	marks, _ := l.marks.after(0)
	for i, e := range append(all, end) {
		if want, _ := event.MarkOf(e, 0); marks[i].Text != want.Text || marks[i].Kind != want.Kind {
			t.Errorf("%T: %+v, want %+v", e, marks[i], want)
		}
	}
}
