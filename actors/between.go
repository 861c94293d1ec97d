package actors

import (
	"github.com/troupe-ml/troupe/telemetry/event"
)

// between is a request to end the attempt between two orders.
type between struct{ end func() *event.RegroupEvent }

// Between calls end when no order is in progress and all stages have their weights: after the step or the validation in progress, if there
// is one. end must end the attempt, with Lost; no other order follows. Or it returns an event: then the attempt regroups here, as with
// Regroup. A run that ends before, or an attempt that regroups or whose ranks are lost, does not call it. A
// later request takes the place of one that waits.
func (r *Run) Between(end func() *event.RegroupEvent) {
	r.system.Root.Send(r.supervisor, &between{end})
}

// endBetween ends the attempt, if a request to do so waits. What is due after the last step is done in the next attempt, or before the
// attempt regroups.
func (a *schedulerActor) endBetween() {
	end := a.between
	if a.between = nil; end == nil {
		return
	}
	e := end()
	if a.ended = e == nil; !a.ended {
		a.regroups(&regroup{0, *e})
	}
}
