package cli

import (
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestMarkedBy: the last event of a run is its process's, whatever a start warned of that had nothing left to do.
func TestMarkedBy(t *testing.T) {
	for _, c := range []struct{ kinds, want string }{
		{"", ""},
		{"warning", ""},
		{"warning start", "start"},
		{"start warning", "warning"},
		{"start end", "end"},
		{"start end warning warning", "end"},
		{"start end warning resume checkpoint", "checkpoint"},
		{"start end end", "end"},
	} {
		var marks []telemetry.Mark
		for i, kind := range strings.Fields(c.kinds) {
			marks = append(marks, telemetry.Mark{TimeMS: int64(i), Kind: kind})
		}
		var s seen
		got := ""
		if last := s.markedBy(marks); last != nil {
			got = last.Kind
		}
		if got != c.want {
			t.Errorf("%q: the last event is %q, not %q", c.kinds, got, c.want)
		}
	}
}

// TestAgain: what a run says about training further.
func TestAgain(t *testing.T) {
	for _, c := range []struct {
		summary cluster.RunSummary
		want    string
	}{
		{cluster.RunSummary{State: event.OutcomeDone, Step: 20, Steps: 20, Checkpoint: "x"}, "N above 20"},
		{cluster.RunSummary{State: event.OutcomeDone, Step: 20, Steps: 10, Checkpoint: "x"}, "N above 20"},
		{cluster.RunSummary{State: stateCrashed, Step: 5, Steps: 10, Checkpoint: "x"}, "engine run runs/v resumes it"},
		{cluster.RunSummary{State: stateCrashed, Step: 5, Steps: 10}, "engine run runs/v starts again at step 0: there is no checkpoint"},
	} {
		s := seen{RunSummary: c.summary, folder: "runs/v"}
		if got := s.again(); !strings.HasSuffix(got, c.want) {
			t.Errorf("%+v: %q, not %q", c.summary, got, c.want)
		}
	}
}

// TestLongName: an error shows the start of a long argument.
func TestLongName(t *testing.T) {
	if text := noRun(strings.Repeat("x", 5000)).Error(); len(text) > 500 {
		t.Errorf("the error has %d bytes", len(text))
	}
}
