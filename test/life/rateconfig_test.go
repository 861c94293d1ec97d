package life

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestRateByConfig: a resume may change the learning rate. The journal has the change, so that the figures repeat if the run
// resumes from an older checkpoint; a start that lacks the --set, or repeats it, changes nothing.
func TestRateByConfig(t *testing.T) {
	base := []string{"run.checkpoint_every=4", "run.keep=0", "run.eval_every=4"}
	with := func(more ...string) []string { return append(base[:len(base):len(base)], more...) }
	notes := func(events []troupe.Event) (all []string) {
		for _, e := range testrun.EventsOf[troupe.ChangeEvent](events) {
			all = append(all, e.Note)
		}
		return all
	}
	out := filepath.Join(t.TempDir(), "out")
	testrun.Train(t, out, with("run.steps=8")...)
	_, events := testrun.Train(t, out, with("run.steps=12", "optimizer.lr=5e-4")...)
	said := notes(events)
	if len(said) != 1 || !strings.HasPrefix(said[0], "run.steps 8 → 12, optimizer.lr 0.001 → 0.0005 from step 9: the rate goes from 0.0001 to 0.000") {
		t.Errorf("it says %q", said)
	}
	// The same rate again, from the default of the configuration: the run keeps its own.
	_, events = testrun.Train(t, out, with("run.steps=16")...)
	var kept bool
	for _, w := range testrun.EventsOf[troupe.WarningEvent](events) {
		kept = kept || w.Text == "optimizer.lr: the run keeps 0.0005, not the default 0.001; to change it, use --set optimizer.lr=0.001"
	}
	if said := notes(events); !kept || len(said) != 1 || !strings.HasPrefix(said[0], "run.steps 12 → 16 from step 13: ") {
		t.Errorf("without the --set it says %q, kept %v", said, kept)
	}
	for _, step := range []int{4, 8, 12} {
		older := testrun.Rewind(t, out, step)
		_, events := testrun.Train(t, older, with("run.steps=16", "optimizer.lr=5e-4")...)
		if said := notes(events); len(said) > 0 {
			t.Errorf("from step %d it says %q", step, said)
		}
		testrun.SameFigures(t, out, older)
		testrun.SameState(t, out, older, 16)
	}

	// A run that goes back by its user's will takes the rate of today from there on.
	run, err := troupe.Start(t.Context(), testrun.NewConfig(t, out, with("run.steps=8", "optimizer.lr=5e-4")...), troupe.Options{FromStep: 4})
	if err != nil {
		t.Fatal(err)
	}
	_, events = testrun.Finish(t, run)
	if said := notes(events); len(said) != 1 || !strings.HasPrefix(said[0], "optimizer.lr 0.001 → 0.0005 from step 5: ") {
		t.Errorf("back at step 4 it says %q", said)
	}
	if rs := testrun.Records(t, out); *rs[4].LR < 1.5**rs[5].LR {
		t.Errorf("the rate of step 4 is %g, of step 5 %g", *rs[4].LR, *rs[5].LR)
	}
}
