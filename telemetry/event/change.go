package event

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/points"
)

// Change is a request to a run, which takes effect after step Step. The run writes a change of the learning rate, and
// each change that names a step, to its journal before the change takes effect. If the run resumes from an older
// checkpoint, the change takes effect at the same step again. A change that names a step in the past takes effect
// after the current step; a stop in the past is refused.
type Change struct {
	Kind ChangeKind `json:"kind"`
	Step int64      `json:"step"` // 0: after the current step
	// LR is the peak and MinLR the floor of the learning rate from step Step+1. They are for ChangeRate only. A floor of 0,
	// or one that is left out, decays to 0: RateChange sets the default floor.
	LR    float64 `json:"lr,omitempty"`
	MinLR float64 `json:"min_lr,omitempty"`
	// Now marks a learning rate in the journal whose request named no step: a later request for another rate, before
	// Step, cancels it.
	Now bool `json:"now,omitempty"`
	// Steps, if it is not 0, WarmupSteps, Decay, DecaySteps and Points are the rest of the learning rate's schedule. They are in the
	// journal of a run whose configuration changed between two starts, and not in requests. DecaySteps is not 0. Points is a text such as
	// "1:0.001 500:0.0005", steps with their rates.
	Steps       int64  `json:"steps,omitempty"`
	WarmupSteps int64  `json:"warmup_steps,omitempty"`
	Decay       string `json:"decay,omitempty"`
	DecaySteps  int64  `json:"decay_steps,omitempty"`
	Points      string `json:"points,omitempty"`
	// Note describes such a change: the keys of the configuration with their old and new values, and the rate.
	Note string `json:"note,omitempty"`
}

// ChangeKind is the kind of a change.
type ChangeKind string

// The kinds of changes.
const (
	ChangePause      ChangeKind = "pause"
	ChangeResume     ChangeKind = "resume" // resumes a paused run and cancels scheduled pauses, at once
	ChangeCheckpoint ChangeKind = "checkpoint"
	ChangeStop       ChangeKind = "stop"
	ChangeRate       ChangeKind = "rate"
)

// RateChange returns a change of the learning rate with the default floor: a tenth of the peak lr, as optimizer.min_lr.
func RateChange(lr float64) Change { return Change{Kind: ChangeRate, LR: lr, MinLR: lr / 10} }

// String describes the change in a few words: "pause after step 5", "rate (peak 0.001, floor 0.0001)".
func (c Change) String() string {
	text := string(c.Kind)
	if c.Kind == ChangeRate {
		text += fmt.Sprintf(" (peak %.6g, floor %.6g)", c.LR, c.MinLR)
	}
	if c.Step > 0 {
		text += fmt.Sprintf(" after step %d", c.Step)
	}
	return text
}

// ErrStep means that the run can't stop at the step that a change names.
var ErrStep = errors.New("the run can't stop at that step")

// ErrJournal means that a run's journal of changes has no room for a change.
var ErrJournal = errors.New("the journal of changes is full")

// Check returns an error if the change is not valid.
func (c Change) Check() error {
	switch {
	case !slices.Contains([]ChangeKind{ChangePause, ChangeResume, ChangeCheckpoint, ChangeStop, ChangeRate}, c.Kind):
		return fmt.Errorf("unknown change %.100q: use pause, resume, checkpoint, stop or rate", c.Kind)
	case c.Step < 0:
		return fmt.Errorf("step %d of a change: use 1 or more, or 0 for the current step", c.Step)
	case c.Kind == ChangeRate && !(c.LR > 0 && c.MinLR >= 0 && finite(c.LR) && finite(c.MinLR)):
		return fmt.Errorf("learning rate with peak %g and floor %g: the peak must be above 0, the floor 0 or more, both finite", c.LR, c.MinLR)
	case c.Kind != ChangeRate && (c.LR != 0 || c.MinLR != 0 || c.Now || c.scheduled() || c.Note != ""):
		return fmt.Errorf("a request of kind %s takes no learning rate", c.Kind)
	case c.scheduled() && (c.Steps <= 0 || c.WarmupSteps < 0 || c.DecaySteps < 0 || !slices.Contains(decays, c.Decay)):
		return fmt.Errorf("schedule of the learning rate with %d steps, a warm-up of %d, decay %.100q of %d: steps must be above 0, the others 0 or more, and the decay one of %s",
			c.Steps, c.WarmupSteps, c.Decay, c.DecaySteps, strings.Join(decays, ", "))
	case c.Points != "" && pointsError(c.Points) != nil:
		return fmt.Errorf("schedule of the learning rate: %w", pointsError(c.Points))
	case len(c.Note) > limitNoteBytes:
		return fmt.Errorf("the note of a change has %d bytes; the limit is %d", len(c.Note), limitNoteBytes)
	}
	return nil
}

// limitNoteBytes is the size of a note of a change.
const limitNoteBytes = 4096

// decays are the decays of the learning rate.
var decays = []string{"cosine", "linear", "constant", "wsd", "cosine_restarts", "inverse_sqrt", "points"}

func pointsError(text string) error {
	_, err := points.Parse(text)
	return err
}

// scheduled reports whether the change has the whole schedule.
func (c Change) scheduled() bool {
	return c.Steps != 0 || c.WarmupSteps != 0 || c.Decay != "" || c.DecaySteps != 0 || c.Points != ""
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
