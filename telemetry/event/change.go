package event

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Change is a request to a run: what is to happen when Step steps have ended. Where it
// changes what is computed, or names a step, it is journalled before it takes effect, and
// takes effect at the same step again when the run goes on from an older checkpoint. One that
// names a step which has ended takes effect with the one in progress; a stop there is refused.
type Change struct {
	Kind ChangeKind `json:"kind"`
	Step int64      `json:"step"` // 0: when the step in progress has ended
	// Of ChangeRate: the peak of the learning rate, and where its decay ends, from the step
	// after Step on.
	LR    float64 `json:"lr,omitempty"`
	MinLR float64 `json:"min_lr,omitempty"`
	// Now marks a learning rate in the journal that named no step when it was asked for: a later
	// request for another rate, before Step, cancels it.
	Now bool `json:"now,omitempty"`
}

// ChangeKind says what is to happen.
type ChangeKind string

// The kinds of changes.
const (
	ChangePause      ChangeKind = "pause"
	ChangeResume     ChangeKind = "resume" // takes every pause back, at once
	ChangeCheckpoint ChangeKind = "checkpoint"
	ChangeStop       ChangeKind = "stop"
	ChangeRate       ChangeKind = "rate"
)

// String says the change in a few words: "pause after step 5", "rate 0.001 to 0.0001".
func (c Change) String() string {
	text := string(c.Kind)
	if c.Kind == ChangeRate {
		text += fmt.Sprintf(" %g to %g", c.LR, c.MinLR)
	}
	if c.Step > 0 {
		text += fmt.Sprintf(" after step %d", c.Step)
	}
	return text
}

// ErrStep: a run can't stop at the step that a change names.
var ErrStep = errors.New("the run can't stop at that step")

// Check says what is wrong with a change.
func (c Change) Check() error {
	switch {
	case !slices.Contains([]ChangeKind{ChangePause, ChangeResume, ChangeCheckpoint, ChangeStop, ChangeRate}, c.Kind):
		return fmt.Errorf("%.100q is no change of a run: it is pause, resume, checkpoint, stop or rate", c.Kind)
	case c.Step < 0:
		return fmt.Errorf("a change at step %d: give 1 or more, or 0 for as soon as possible", c.Step)
	case c.Kind == ChangeRate && !(c.LR > 0 && c.MinLR >= 0 && finite(c.LR) && finite(c.MinLR)):
		return fmt.Errorf("a learning rate from %g to %g: give a finite number above 0, and one from 0", c.LR, c.MinLR)
	case c.Kind != ChangeRate && (c.LR != 0 || c.MinLR != 0 || c.Now):
		return fmt.Errorf("a learning rate with %s, which has none", c.Kind)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
