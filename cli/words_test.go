package cli

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/runlog"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestWords: the command line, its JSON and events.jsonl describe an event with the text of event.MarkOf.
func TestWords(t *testing.T) {
	dir := t.TempDir()
	fsys, err := folder.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fsys.Close() }() // read below under its path
	w, err := telemetry.OpenMarks(fsys, "events.jsonl", 9)
	if err != nil {
		t.Fatal(err)
	}
	var marks runlog.Marks
	if err := marks.Begin(w, 0, false, ""); err != nil {
		t.Fatal(err)
	}
	all := []troupe.Event{
		troupe.CheckpointEvent{Step: 3, Dir: "runs/a/step-3", Took: time.Second, Best: true},
		troupe.PauseEvent{Step: 3, Paused: true},
		troupe.PauseEvent{Step: 3},
		troupe.TextEvent{Step: 3, Prompt: "Once", Text: " upon\na time"},
		troupe.ChangeEvent{Change: troupe.Change{Kind: troupe.ChangeRate, Step: 4, LR: 0.2, MinLR: 0.1}},
		troupe.ChangeEvent{Change: troupe.Change{Kind: troupe.ChangeStop, Step: 9}},
		troupe.ChangeEvent{Change: troupe.Change{Kind: troupe.ChangeStop, Step: 2}, Err: errors.New("step 2 has ended")},
		troupe.RestartEvent{Err: errors.New("worker w2 failed"), Restart: 1, Most: 3},
		troupe.ReplaceEvent{Step: 4, Ranks: []int{1}, Err: errors.New("worker w2 failed"), Loaded: time.Second},
		troupe.ReplaceEvent{Step: 4, Ranks: []int{1, 3}, Err: errors.New("worker w2 failed"), Loaded: time.Second},
		troupe.RegroupEvent{Step: 4, Leaving: []string{"w2"}},
		troupe.RegroupEvent{Step: 4, Free: []string{"w2", "w3"}},
		troupe.StallEvent{Quiet: time.Minute, Status: event.Status{Actors: []event.Snapshot{{Actor: event.Scheduler, Rank: -1}}}},
		troupe.WarningEvent{Text: "the disk is nearly full"},
		troupe.EndEvent{Result: troupe.Result{Step: 4, Steps: 9, Stopped: true}},
	}
	for _, e := range all {
		want, ok := event.MarkOf(e, 3)
		if !ok || want.Text == "" {
			t.Errorf("%T has no words", e)
			continue
		}
		if err := marks.Event(e, 3); err != nil {
			t.Fatal(err)
		}
		if _, end := e.(troupe.EndEvent); end {
			continue // the last line has more text: see TestClosing
		}
		var plain, text, said strings.Builder
		a := &app{out: &stream{w: &plain}, err: &plain, now: time.Now}
		a.newReporter(nil, 1, runFlags{}).event(e)
		if !strings.Contains(plain.String(), indented(want.Text)) {
			t.Errorf("%T: the command line says %q, want %q", e, plain.String(), want.Text)
		}
		if _, change := e.(troupe.ChangeEvent); change {
			continue // JSON has no events for requests
		}
		b := &app{out: &stream{w: &text}, err: &said, now: time.Now}
		b.newReporter(nil, 1, runFlags{json: true}).event(e)
		var got struct{ Text string }
		if err := json.Unmarshal([]byte(text.String()), &got); err != nil || got.Text != want.Text {
			t.Errorf("%T: JSON says %q (%v), want %q", e, text.String(), err, want.Text)
		}
	}
	if err := marks.Close(); err != nil {
		t.Fatal(err)
	}
	written, err := telemetry.ReadMarks(filepath.Join(dir, "events.jsonl"))
	if err != nil || len(written) != len(all)+1 {
		t.Fatalf("%d marks, want %d: %v", len(written), len(all)+1, err)
	}
	for i, e := range all {
		if c, ok := e.(troupe.CheckpointEvent); ok { // the file names it relative to its folder
			c.Dir = "checkpoints/" + filepath.Base(c.Dir)
			e = c
		}
		if want, _ := event.MarkOf(e, 3); written[i+1].Text != want.Text || written[i+1].Kind != want.Kind || written[i+1].Step != want.Step {
			t.Errorf("%T: events.jsonl says %+v, want %+v", e, written[i+1], want)
		}
	}
}
