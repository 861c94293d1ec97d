package event_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

var update = flag.Bool("update", false, "regenerate the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
	}
}

// The table that a person reads, with everything an actor may do and wait for.
func TestStatusTable(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(ms int) time.Time { return now.Add(-time.Duration(ms) * time.Millisecond) }
	action := func(s string) scheduler.Action {
		var a scheduler.Action
		var letter rune
		if _, err := fmt.Sscanf(s, "%d%c%d", &a.Chunk, &letter, &a.Microbatch); err != nil {
			t.Fatal(err)
		}
		a.Type = scheduler.Type(strings.IndexRune("?FIWB", letter))
		return a
	}
	waiting := func(rank int, cell string, w event.Wait, needs string, from string) event.Snapshot {
		s := event.Snapshot{Actor: "stage " + string(rune('0'+rank)), Rank: rank, Step: 7, Phase: event.Train, Doing: event.Waiting,
			Action: action(cell), Wait: w, From: from, Since: ago(100 * rank)}
		if needs != "" {
			s.Needs = action(needs)
		}
		return s
	}
	credit := waiting(2, "2F4", event.WaitCredit, "3F4", "stage 3")
	credit.Need = 1
	for name, all := range map[string][]event.Snapshot{
		"running": {
			{Actor: "scheduler", Step: 7, Phase: event.Train, Doing: event.Waiting, Wait: event.WaitStages, From: "stage 0", Held: 1, Need: 4,
				Since: ago(3141)},
			{Actor: "loader", Step: 7, Phase: event.Train, Doing: event.Reading, Since: ago(2)},
			{Actor: "checkpoint", Step: 5, Doing: event.Writing, Since: ago(61000)},
			{Actor: "metrics", Step: 6, Since: ago(1000)},
			waiting(0, "0B1", event.WaitGradient, "1B1", "stage 1"),
			waiting(1, "1F5", event.WaitActivation, "0F5", "stage 2"),
			credit,
			{Actor: "stage 3", Rank: 3, Step: 7, Phase: event.Train, Doing: event.Running, Action: action("3W2"), Since: ago(3000)},
		},
		"between": {
			{Actor: "scheduler", Step: 7, Doing: event.Waiting, Wait: event.WaitDisk, From: "checkpoint", Since: ago(10)},
			waiting(0, "0F2", event.WaitTokens, "0F2", "loader"),
			{Actor: "checkpoint", Step: 7, Doing: event.Waiting, Wait: event.WaitStages, From: "stage 2", Held: 2, Need: 4, Since: ago(9)},
			{Actor: "stage 1", Rank: 1, Step: 7, Phase: event.Train, Doing: event.Waiting, Wait: event.WaitTied, From: "stage 0", Since: ago(8)},
			{Actor: "stage 2", Rank: 2, Step: 7, Doing: event.Copying, Since: ago(7)},
			{Actor: "stage 3", Rank: 3, Step: 7, Phase: event.Train, Wait: event.WaitDecision, From: "scheduler", Since: ago(6)},
			{Actor: "stage 4", Rank: 4, Step: 7, Wait: event.WaitOrder, From: "scheduler", Since: ago(5)},
			{Actor: "stage 5", Rank: 5, Step: 7, Phase: event.Train, Doing: event.Reducing, Since: ago(4)},
			{Actor: "stage 6", Rank: 6, Step: 7, Doing: event.Updating, Since: ago(3)},
			{Actor: "stage 7", Rank: 7, Step: 7, Doing: event.Failing, Since: ago(2)},
			{Actor: "stage 8", Rank: 8, Step: 7, Doing: event.Starting, Since: ago(1)},
			{Actor: "stage 9", Rank: 9, Step: 7, Doing: event.Finished, Since: ago(0)},
		},
		"cycle": {
			{Actor: "scheduler", Step: 7, Phase: event.Eval, Doing: event.Waiting, Wait: event.WaitStages, From: "stage 1", Need: 2, Since: ago(50)},
			waiting(1, "1B0", event.WaitActivation, "2F0", "stage 2"),
			waiting(2, "2F0", event.WaitGradient, "1I0", "stage 1"),
		},
		"nobody": {},
	} {
		golden(t, "status_"+name+".txt", event.Status{Time: now, Actors: all}.String())
	}
}

// TestCutLink: waits that lead back to an actor are of a message that is missing. Where it is known which link it can't
// pass, the status names that link; else which actors wait for each other, and that this is between hosts.
func TestCutLink(t *testing.T) {
	now := time.Unix(1000, 0)
	actor := func(name, host string, rank int, w event.Wait, from string) event.Snapshot {
		return event.Snapshot{Actor: name, Host: host, Rank: rank, Step: 7, Phase: event.Train, Doing: event.Waiting, Wait: w, From: from,
			Since: now.Add(-3 * time.Second), Heard: now}
	}
	pair := func(host0, host1 string) []event.Snapshot {
		return []event.Snapshot{actor("scheduler", "", -1, event.WaitStages, "stage 0"),
			actor("stage 0", host0, 0, event.WaitGradient, "stage 1"), actor("stage 1", host1, 1, event.WaitActivation, "stage 0")}
	}
	lost := []event.Snapshot{actor("scheduler", "", -1, event.WaitStages, "stage 0"), actor("stage 0", "w0", 0, event.WaitOrder, "scheduler")}
	stopped := pair("w0", "w1")
	stopped[1].Heard = now.Add(-3200 * time.Millisecond)
	young := pair("w0", "w1")
	young[2].Since = now.Add(-300 * time.Millisecond)
	busy := pair("w0", "w1")
	busy[2].Wait, busy[2].Doing, busy[2].From = event.WaitNothing, event.Reducing, ""
	for _, test := range []struct {
		name   string
		actors []event.Snapshot
		cut    []event.CutLink
		root   string // that the last line begins with
		lines  int    // of Chain
	}{
		{"between workers", pair("w0", "w1"), []event.CutLink{{From: "w0", To: "w1", For: 3100 * time.Millisecond}},
			"w0 does not reach w1: no acknowledgment for 3.1 s", 4},
		{"the other way", pair("w0", "w1"), []event.CutLink{{From: "w1", To: "w0", For: 4 * time.Second}},
			"w1 does not reach w0: no acknowledgment for 4.0 s", 3},
		{"an order", lost, []event.CutLink{{To: "w0", For: 5 * time.Second}},
			"the coordinator does not reach w0: no acknowledgment for 5.0 s", 3},
		{"a report", lost, []event.CutLink{{From: "w0", For: 5 * time.Second}},
			"w0 does not reach the coordinator: no acknowledgment for 5.0 s", 2},
		{"a link that is not on the way", pair("w0", "w1"), []event.CutLink{{From: "w1", To: "w2", For: time.Minute}},
			"w1 does not reach w2: no acknowledgment for 60.0 s", 5},
		{"not known yet", pair("w0", "w1"), nil,
			"a message between hosts has not arrived: scheduler ← stage 0 on w0 ← stage 1 on w1 ← stage 0 on w0", 5},
		{"on its way", young, nil, "stage 1 on w1 waits for activation", 3},
		{"a worker is silent", stopped, nil,
			"w0 has not reported for 3.2 s: scheduler ← stage 0 on w0 ← stage 1 on w1 ← stage 0 on w0", 5},
		{"in one worker", pair("w0", "w0"), nil, "a cycle of waits: scheduler ← stage 0 on w0 ← stage 1 on w0 ← stage 0 on w0", 5},
		{"in one process", pair("", ""), nil, "a cycle of waits: scheduler ← stage 0 ← stage 1 ← stage 0", 5},
		{"somebody works", busy, []event.CutLink{{From: "w0", To: "w1", For: time.Second}}, "stage 1 on w1", 3},
	} {
		s := event.Status{Time: now, Actors: test.actors, Cut: test.cut}
		chain := s.Chain()
		if root := s.Explain(); root != "root: "+chain[len(chain)-1] {
			t.Errorf("%s: %q of %q", test.name, root, chain)
		}
		if last := chain[len(chain)-1]; !strings.HasPrefix(last, test.root) || len(chain) != test.lines {
			t.Errorf("%s: the chain is %q, want %d lines and %q", test.name, chain, test.lines, test.root)
		}
	}
}
