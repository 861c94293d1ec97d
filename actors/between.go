package actors

import "github.com/asynkron/protoactor-go/actor"

// between is a request to end the attempt between two orders.
type between struct{ end func() }

// Between calls end when no order is in progress and all stages have their weights: after the step or the validation in progress, if there
// is one. No other order follows, so end must end the attempt, with Lost. A run that ends by itself before does not call it.
func (r *Run) Between(end func()) { r.system.Root.Send(r.supervisor, &between{end}) }

// endsBetween notes a request to end the attempt between two orders.
func (a *schedulerActor) endsBetween(ctx actor.Context, m *between) {
	a.ends = append(a.ends, m.end)
	a.proceed(ctx)
}

// endBetween ends the attempt. What is due after the last step is done in the next attempt.
func (a *schedulerActor) endBetween() {
	a.ended = true
	for _, end := range a.ends {
		end()
	}
}
