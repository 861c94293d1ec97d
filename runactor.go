package troupe

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Messages to a run's actor, Run.PID. A Change is one, too: the actor answers with a ChangeReply,
// and a ChangeEvent follows when the change is journaled.
type (
	// Subscribe makes an actor a watcher: see Options.Watchers.
	Subscribe struct{ Watcher *actor.PID }
	// Unsubscribe removes a watcher.
	Unsubscribe struct{ Watcher *actor.PID }
	// StatusRequest asks for the Status of the run.
	StatusRequest struct{}
	// ChangeReply answers a Change. Err is why the change is invalid, or nil.
	ChangeReply struct {
		Change Change
		Err    error
	}
)

// EndEvent is the last event of a watcher. It has the results of Wait. For readers of Run.Events,
// the channel is closed instead.
//
//	Result Result
//	Err    error
type EndEvent = event.EndEvent

// Status is what every actor of a run is doing and waiting for. Its methods put that into words: String and Table, and Chain,
// the waits down to the actor that blocks the run. json.Marshal writes it as engine status --json does.
//
//	Time      time.Time
//	Step      int64         // the last finished step
//	Steps     int64         // of the run
//	Remaining time.Duration // an estimate for the other steps; 0: not known yet
//	Actors    []event.Snapshot
//	Requests  []Change // open requests
//	Cut       []event.CutLink
type Status = event.Status

// runActor represents a run to other actors of the service. It only passes messages on: it never waits for the
// run, and the run never waits for it.
type runActor struct {
	run      *Run
	pid      *actor.PID
	root     *actor.RootContext
	initial  []*actor.PID
	watchers []*watcher
	queued   atomic.Int64  // events in its mailbox
	dropped  atomic.Int64  // step events that were not sent to it
	done     chan struct{} // closed when it has ended
}

// watcher is an actor that gets the run's events.
type watcher struct {
	pid     *actor.PID
	sent    int  // step events that it has not acknowledged
	asked   int  // of those, sent before the last question
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
	a := &runActor{run: r, root: o.System.Root, initial: o.Watchers, done: make(chan struct{})}
	// After a panic it is started again with the same state.
	a.pid, err = a.root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return a }), actors.SupervisorPrefix+"run-"+id.String())
	if err == nil {
		r.out.actor = a
	}
	return err
}

// PID returns the run's actor in Options.System, or nil without a System. Other actors
// send it a Change, a StatusRequest, a Subscribe or an Unsubscribe. It ends with the run; actors that
// watch it (actor.Watch) are told. Stopping it stops the run, with a checkpoint.
func (r *Run) PID() *actor.PID {
	if r.out.actor == nil {
		return nil
	}
	return r.out.actor.pid
}

// tell passes an event on to the watchers. It drops step events if too many wait.
func (a *runActor) tell(e Event) {
	if a == nil || a.ended() {
		return
	}
	if _, step := e.(StepEvent); step && a.queued.Load() >= LimitEvents {
		a.dropped.Add(1) // the actor waits for a watcher whose mailbox is bounded
		return
	}
	a.queued.Add(1)
	a.root.Send(a.pid, delivery{e})
}

// waiting is the number of events that have not reached the watchers yet.
func (a *runActor) waiting() int {
	if a == nil {
		return 0
	}
	return int(a.queued.Load())
}

// ended reports whether the actor has ended.
func (a *runActor) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// end ends the actor after the messages in its mailbox. It waits at most endPatience for
// a watcher that blocks the actor.
func (a *runActor) end(e EndEvent) {
	if a == nil || a.ended() {
		return
	}
	a.tell(e)
	a.root.Poison(a.pid)
	select {
	case <-a.done:
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
		dropped := int(a.dropped.Swap(0))
		for _, w := range a.watchers {
			w.dropped += dropped
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
		a.run.Stop() // no effect if the run has ended
		for _, w := range a.watchers {
			ctx.Unwatch(w.pid)
		}
	case *actor.Stopped:
		close(a.done)
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

// pass sends a watcher an event. The watcher's mailbox is unbounded: pass drops a step event if
// LimitEvents may still be in it. The watcher acknowledges events by its answer to actor.Touch, which
// every actor gives in the order of its mailbox.
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
	ctx.Request(w.pid, e) // so that it knows the run's PID
	if !w.asking && w.sent >= touchAt {
		w.asked, w.asking = w.sent, true
		ctx.Request(w.pid, &actor.Touch{})
	}
}

// Actions are the recorded actions of a step: see Run.Record.
type Actions = event.Actions

// ActionTime is when an action ran.
type ActionTime = event.ActionTime

// Subscription is a reader of a run's events. A run may have any number: see Run.Subscribe.
type Subscription = event.Subscription

// outlet passes a run's events to all readers. The run's mu guards it.
type outlet struct {
	events  chan Event
	feed    feed.Feed // of the subscriptions
	actor   *runActor // nil: there is none
	traced  int64     // run.trace_every; 0: no step is traced
	dropped int
}

// publish passes an event to all readers. A reader that is too slow loses step events, and a warning tells it
// how many.
func (o *outlet) publish(e Event) {
	o.feed.Publish(e)
	s, step := e.(StepEvent)
	if step && (o.traced == 0 || int64(s.Step)%o.traced != 0) { // a traced step keeps its trace
		e = feed.Thinned(s, max(len(o.events), o.actor.waiting()))
	}
	o.actor.tell(e)
	if step && len(o.events) >= cap(o.events)-16 {
		o.dropped++
		return
	}
	if len(o.events) < cap(o.events)-17 {
		o.tellDropped()
	}
	select {
	case o.events <- e:
	default:
		o.dropped++
	}
}

// tellDropped reports how many events were dropped, if there is room.
func (o *outlet) tellDropped() {
	if o.dropped == 0 || len(o.events) == cap(o.events) {
		return
	}
	o.events <- feed.Dropped(o.dropped)
	o.dropped = 0
}

// send publishes an event and writes it to events.jsonl.
func (r *Run) send(e Event) {
	if q, ok := e.(actors.RequestEvent); ok {
		r.mu.Lock()
		r.requests.Event(q)
		r.mu.Unlock()
		return
	}
	r.publish(e)
	if c, ok := e.(ChangeEvent); ok {
		for _, old := range c.Cancelled {
			r.warn("the learning rate %g from step %d cancels an earlier change to %g, which the run would have repeated after step %d",
				c.LR, c.Step+1, old.LR, old.Step)
		}
	}
	switch e.(type) {
	case StepEvent, CheckpointEvent: // the attempt is still running, and its sampler needs them
		r.attempt.Event(e)
	}
	r.unmarked(r.marks.Event(e, r.ended())) // last, because it may wait for the disk
}

// publish passes an event to all readers.
func (r *Run) publish(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := e.(type) {
	case StepEvent:
		r.step = int64(e.Step)
		if e.ValLoss != nil {
			r.result.LastValLoss = *e.ValLoss
		}
		if e.StepMS != nil {
			r.meter.Add(time.Duration(*e.StepMS*float64(time.Millisecond)), 0)
		}
	case PauseEvent:
		if r.pausedAt = -1; e.Paused {
			r.pausedAt = e.Step
		}
	}
	r.out.publish(e)
}

func (r *Run) warn(format string, args ...any) {
	r.send(WarningEvent{Text: fmt.Sprintf(format, args...)})
}

// prepare says what the start is about to do: at once, and as an event, which is read after the start.
func (r *Run) prepare(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if r.preparing != nil {
		r.preparing(text)
	}
	r.warn("%s", text)
}

// unmarked warns that events.jsonl cannot be written. The run continues.
func (r *Run) unmarked(err error) {
	if err != nil {
		r.publish(WarningEvent{Text: fmt.Sprintf("events are no longer written to events.jsonl: %v", err)})
	}
}

// ended is the last step that has ended.
func (r *Run) ended() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// Events returns the run's events, in order. The run closes the channel when it
// ends. You need not read it.
func (r *Run) Events() <-chan Event { return r.out.events }

// Subscribe returns a new reader of the run's events from now on. Other readers and Events still get
// every event.
func (r *Run) Subscribe() *Subscription { return r.out.feed.Subscribe() }
