package life

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// TestRateJumpIsReported: steps that are added stretch the decay, and the run says by how much the rate jumps, as its
// metrics then show.
func TestRateJumpIsReported(t *testing.T) {
	for _, tt := range []struct {
		decay        string
		first, later int
		at           int // the step at which the rates part; 0: they never do
	}{
		{"cosine", 4, 8, 5},
		{"linear", 4, 8, 5},
		{"wsd", 4, 8, 5},
		{"cosine", 4, 4, 0},
		{"constant", 4, 8, 0},
		{"inverse_sqrt", 4, 8, 0},
	} {
		t.Run(fmt.Sprintf("%s of %d to %d", tt.decay, tt.first, tt.later), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			sets := []string{"optimizer.decay=" + tt.decay, "optimizer.warmup_steps=0", "optimizer.lr=1e-3", "optimizer.min_lr=1e-4",
				"run.eval_every=0", "run.checkpoint_every=2"}
			testrun.Train(t, out, append(sets, fmt.Sprintf("run.steps=%d", tt.first))...)
			_, events := testrun.Train(t, out, append(sets, fmt.Sprintf("run.steps=%d", tt.later))...)
			var said []string
			for _, e := range testrun.EventsOf[troupe.ChangeEvent](events) {
				said = append(said, e.Note)
			}
			if tt.at == 0 {
				if len(said) > 0 {
					t.Errorf("the rate is the same, and it says %q", said)
				}
				return
			}
			all := testrun.Records(t, out)
			i := slices.IndexFunc(testrun.EventsOf[troupe.StepEvent](events), func(e troupe.StepEvent) bool { return e.Step == tt.at })
			if i < 0 {
				t.Fatalf("no step %d in %v", tt.at, all)
			}
			is := *testrun.EventsOf[troupe.StepEvent](events)[i].LR
			want := fmt.Sprintf("run.steps %d → %d from step %d: the rate goes from %.3g to %.3g", tt.first, tt.later, tt.at, 1e-4, is)
			if !slices.Equal(said, []string{want}) {
				t.Errorf("it says %q, want %q", said, want)
			}
		})
	}
}
