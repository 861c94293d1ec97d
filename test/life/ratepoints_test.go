package life

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestRatePoints: the rate follows the points of a table, which more steps do not stretch. A resume with other points says where the rate
// changes, and a later resume without them keeps them.
func TestRatePoints(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	few := []string{"optimizer.decay=points", "optimizer.warmup_steps=0", "run.eval_every=0", "run.checkpoint_every=2"}
	sets := append(slices.Clone(few), "optimizer.points=[[1, 1e-3], [3, 3e-3], [5, 1e-3]]")
	said := func(sets ...string) string {
		_, events := testrun.Train(t, out, sets...)
		var notes []string
		for _, e := range testrun.EventsOf[troupe.ChangeEvent](events) {
			notes = append(notes, e.Note)
		}
		return strings.Join(notes, "\n")
	}
	rates := func(want ...float64) {
		t.Helper()
		all := testrun.Records(t, out)
		for i, w := range want {
			if got := *all[len(all)-len(want)+i].LR; math.Abs(got-w) > 1e-12 {
				t.Errorf("the rate of step %d is %g, want %g", all[len(all)-len(want)+i].Step, got, w)
			}
		}
	}
	said(append(sets, "run.steps=4")...)
	rates(1e-3, 2e-3, 3e-3, 2e-3)
	if note := said(append(sets, "run.steps=6")...); note != "" {
		t.Errorf("more steps do not change the rate, and it says %q", note)
	}
	rates(1e-3, 1e-3)
	note := said(append(few, "optimizer.points=[[1, 1e-3], [9, 5e-3]]", "run.steps=8")...)
	if !strings.Contains(note, "optimizer.points [[1, 0.001], [3, 0.003], [5, 0.001]] → [[1, 0.001], [9, 0.005]]") ||
		!strings.Contains(note, "the rate goes from 0.001 to 0.004") {
		t.Errorf("with other points it says %q", note)
	}
	rates(4e-3, 4.5e-3)
}
