package troupe

import (
	"errors"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// TestNotRenewed: an attempt that may not be renewed, although its stages were kept, is not taken for one that was. The run would wait
// for the ended attempt again and again.
func TestNotRenewed(t *testing.T) {
	lost := &plan.LostError{Worker: "w1", Err: errors.New("gone")}
	kept := actors.Outcome{State: trainstate.State{Step: 5}, Carry: &actors.Carry{}, Err: lost}
	barren := attempt.Restarts{Most: 1}
	for barren.Renews(5) {
	}
	for name, c := range map[string]struct {
		run *Run
		out actors.Outcome
	}{
		"killed":                   {&Run{killed: true}, kept},
		"replacements without end": {&Run{restarts: barren}, kept},
		"a stage failed first":     {&Run{}, actors.Outcome{Err: lost}},
		"stages that cannot stay":  {&Run{}, actors.Outcome{Err: lost, Unkept: plan.ErrNoHolder}},
	} {
		if c.run.renew(Options{}, c.out) {
			t.Errorf("%s: renewed", name)
		}
	}
}
