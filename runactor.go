package troupe

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Messages to a run's actor, Run.PID. A Change is one too: it is answered with a ChangeReply,
// and a ChangeEvent follows when it is journalled.
type (
	// Subscribe makes an actor a watcher: see Options.Watchers.
	Subscribe struct{ Watcher *actor.PID }
	// Unsubscribe takes that back.
	Unsubscribe struct{ Watcher *actor.PID }
	// StatusRequest is answered with the Status of the run.
	StatusRequest struct{}
	// ChangeReply answers a Change. With Err it is none that can be made.
	ChangeReply struct {
		Change Change
		Err    error
	}
)

// EndEvent is a watcher's last: how the run has ended, as Wait tells it. Who reads Run.Events finds
// the channel closed instead.
type EndEvent = event.EndEvent

// Status is what every actor of a run is doing.
type Status = event.Status

// runActor is a run to other actors of the service's. It only passes on: it never waits for the
// run, nor the run for it.
type runActor struct {
	run      *Run
	pid      *actor.PID
	root     *actor.RootContext
	initial  []*actor.PID
	watchers []*watcher
	queued   atomic.Int64  // events that wait in its mailbox
	lost     atomic.Int64  // step events that did not come to it
	gone     chan struct{} // closed when it has ended
}

// watcher is an actor that gets the run's events.
type watcher struct {
	pid     *actor.PID
	sent    int  // step events that it has not said it has taken
	asked   int  // of those, sent before it was asked last
	asking  bool // it has not answered
	dropped int
}

// delivery is an event on its way to the watchers.
type delivery struct{ Event }

func (delivery) IgnoreDeadLetterLogging() {}

// startActor spawns the run's actor in the caller's system, if there is one.
func (r *Run) startActor(o Options) error {
	if o.System == nil {
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	a := &runActor{run: r, root: o.System.Root, initial: o.Watchers, gone: make(chan struct{})}
	// Should it panic, it is started again with what it knows.
	a.pid, err = a.root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return a }), actors.SupervisorPrefix+"run-"+id.String())
	if err == nil {
		r.out.actor = a
	}
	return err
}

// PID is the run's actor in Options.System; nil where there is none. Other actors of that system
// send it a Change, a StatusRequest, a Subscribe or an Unsubscribe. It ends with the run, which who
// watches it (actor.Watch) is told; stopping it stops the run, with a checkpoint.
func (r *Run) PID() *actor.PID {
	if r.out.actor == nil {
		return nil
	}
	return r.out.actor.pid
}

// tell passes an event on to the watchers. Step events are dropped where too many wait.
func (a *runActor) tell(e Event) {
	if a == nil || a.ended() {
		return
	}
	if _, step := e.(StepEvent); step && a.queued.Load() >= LimitEvents {
		a.lost.Add(1) // the actor hangs in the mailbox of a watcher, which has a bound
		return
	}
	a.queued.Add(1)
	a.root.Send(a.pid, delivery{e})
}

// waiting is how many events have not come to the watchers yet.
func (a *runActor) waiting() int {
	if a == nil {
		return 0
	}
	return int(a.queued.Load())
}

// ended reports whether it has, by whoever has stopped it.
func (a *runActor) ended() bool {
	select {
	case <-a.gone:
		return true
	default:
		return false
	}
}

// end ends the actor behind what is in its mailbox. A watcher that holds it up is not waited for
// longer than endPatience.
func (a *runActor) end(e EndEvent) {
	if a == nil || a.ended() {
		return
	}
	a.tell(e)
	a.root.Poison(a.pid)
	select {
	case <-a.gone:
	case <-time.After(endPatience):
	}
}

func (a *runActor) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		for _, pid := range a.initial {
			a.subscribe(ctx, pid)
		}
		a.initial = nil
	case delivery:
		a.queued.Add(-1)
		lost := int(a.lost.Swap(0))
		for _, w := range a.watchers {
			w.dropped += lost
			w.pass(ctx, m.Event)
		}
	case *actor.Touched:
		for _, w := range a.watchers {
			if w.pid.Equal(m.Who) {
				w.sent, w.asking = w.sent-w.asked, false
			}
		}
	case Subscribe:
		a.subscribe(ctx, m.Watcher)
	case Unsubscribe:
		a.unsubscribe(ctx, m.Watcher)
	case *actor.Terminated:
		a.unsubscribe(ctx, m.Who)
	case StatusRequest:
		ctx.Respond(a.run.Status())
	case Change:
		reply := ChangeReply{m, a.run.Change(m)}
		if ctx.Sender() != nil {
			ctx.Respond(reply)
		}
	case *actor.Stopping:
		a.run.Stop() // of a run that has ended it is nothing
		for _, w := range a.watchers {
			ctx.Unwatch(w.pid)
		}
	case *actor.Stopped:
		close(a.gone)
	}
}

func (a *runActor) subscribe(ctx actor.Context, pid *actor.PID) {
	if pid == nil || slices.ContainsFunc(a.watchers, func(w *watcher) bool { return w.pid.Equal(pid) }) {
		return
	}
	a.watchers = append(a.watchers, &watcher{pid: pid})
	ctx.Watch(pid)
}

func (a *runActor) unsubscribe(ctx actor.Context, pid *actor.PID) {
	if pid == nil {
		return
	}
	ctx.Unwatch(pid)
	a.watchers = slices.DeleteFunc(a.watchers, func(w *watcher) bool { return w.pid.Equal(pid) })
}

// pass sends a watcher an event. Its mailbox has no bound: a step event is dropped when
// LimitEvents of them may still be in it. That it has taken those before it says by itself: any
// actor answers actor.Touch, in the order of its mailbox.
func (w *watcher) pass(ctx actor.Context, e Event) {
	if _, step := e.(StepEvent); step {
		if w.sent >= LimitEvents {
			w.dropped++
			return
		}
		w.sent++
	}
	if w.dropped > 0 && w.sent < LimitEvents {
		ctx.Request(w.pid, feed.Dropped(w.dropped))
		w.dropped = 0
	}
	ctx.Request(w.pid, e) // by which it knows the run's PID
	if !w.asking && w.sent >= touchEvery {
		w.asked, w.asking = w.sent, true
		ctx.Request(w.pid, &actor.Touch{})
	}
}
