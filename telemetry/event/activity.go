package event

// The activities of a run: see Status.Activity.
const (
	ActivityStarting   = "starting"
	ActivityTraining   = "training"
	ActivityValidating = "validating"
	ActivityWriting    = "writing a checkpoint"
	ActivityBoth       = "training, writing a checkpoint"
	ActivityPaused     = "paused"
	ActivityEnding     = "ending"
)

// saver is the name of the actor that writes checkpoints.
const saver = "checkpoint"

// Paused reports whether the run is paused after a step.
func (s Status) Paused() bool {
	for _, a := range s.Actors {
		if a.Actor == Scheduler {
			return a.Doing == Paused
		}
	}
	return false
}

// Activity says in a few words what the run does. A run writes most checkpoints while it trains. "": no actor is known.
func (s Status) Activity() string {
	var scheduler, writer *Snapshot
	for i, a := range s.Actors {
		switch a.Actor {
		case Scheduler:
			scheduler = &s.Actors[i]
		case saver:
			writer = &s.Actors[i]
		}
	}
	if scheduler == nil {
		return ""
	}
	saves := writer != nil && (writer.Doing == Writing || writer.Doing == Waiting)
	switch {
	case scheduler.Doing == Starting:
		return ActivityStarting
	case saves && (scheduler.From == saver || scheduler.Doing == Paused || scheduler.Doing == Finished):
		return ActivityWriting
	case scheduler.Doing == Paused:
		return ActivityPaused
	case scheduler.Doing == Finished || scheduler.Doing == Failing:
		return ActivityEnding
	case scheduler.Phase == Eval:
		return ActivityValidating
	case saves:
		return ActivityBoth
	}
	return ActivityTraining
}
