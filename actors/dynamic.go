package actors

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// dynamic is a stage's part of a dynamic order: what to do next is its dispatcher's to
// say, by the priorities that came with the order.
type dynamic struct {
	dispatcher *scheduler.Dispatcher // nil: the order is the row's
	chosen     [1]scheduler.Action
	can        func(scheduler.Action) bool
}

// ExpectInput tells a stage that the input of one of its actions is being made. In a
// dynamic order a stage waits for what its row has next.
type ExpectInput struct {
	Header
	Action scheduler.Action
}

// beginDynamic prepares the choices of an order.
func (a *stageActor) beginDynamic() {
	d := &a.dynamic
	if a.order.Priorities == nil {
		d.dispatcher = nil
		return
	}
	d.dispatcher, d.can = a.order.Priorities.Dispatcher(a.at[grid.Pipeline]), a.canBegin
	for key := range a.inbox { // what came before the order
		a.arrived(key)
	}
	// The table has an edge between all neighbours; nothing comes over some.
	for _, chunk := range a.chunks {
		for kind, t := range [2]scheduler.Type{scheduler.F, scheduler.B} {
			if len(a.waysOf[chunk].ins[kind]) == 0 && d.dispatcher.Awaits(scheduler.Action{Chunk: chunk, Type: t}) {
				for m := range a.order.Table.Microbatches {
					d.dispatcher.Arrived(scheduler.Action{Chunk: chunk, Type: t, Microbatch: int32(m)})
				}
			}
		}
	}
}

// arrived tells the dispatcher of an activation or a gradient.
func (a *stageActor) arrived(key inboxKey) {
	if a.dynamic.dispatcher == nil || a.order == nil || key.order != a.order.Order || key.kind > inGradient || !a.complete(key.order, key.kind, key.chunk, key.microbatch) {
		return
	}
	act := scheduler.Action{Chunk: key.chunk, Type: scheduler.F, Microbatch: key.microbatch}
	if key.kind == inGradient {
		act.Type = scheduler.B // or I: an input serves either
	}
	a.dynamic.dispatcher.Arrived(act)
}

// canBegin says whether an action has what the dispatcher doesn't know of: its tokens, and
// a credit for its output.
func (a *stageActor) canBegin(act scheduler.Action) bool {
	if _, lacks := a.lacksCredit(&visit{Action: act, edges: a.edges(act)}); lacks {
		return false
	}
	_, there := a.inbox[inboxKey{a.order.Order, inData, act.Chunk, act.Microbatch, 0, 0}]
	return there || !a.needsData(act)
}

// choose returns the actions to begin now, none if the stage has to wait.
func (a *stageActor) choose() []scheduler.Action {
	d := &a.dynamic
	if d.dispatcher == nil {
		return a.row[a.next : a.next+scheduler.Width(a.row, a.next)]
	}
	act, ok := d.dispatcher.Next(d.can)
	if !ok {
		return nil
	}
	d.chosen[0] = act
	return d.chosen[:]
}

// blocked describes what keeps the first action by priority from starting.
func (a *stageActor) blocked() event.Snapshot {
	act, _ := a.dynamic.dispatcher.First()
	v := a.visit(act)
	s := a.missing(&v)
	if s.Wait == event.WaitNothing {
		s.Wait, s.From = event.WaitRoom, a.spec.stageName(a.rank)
	}
	return s
}

// announce tells the stage that waits for an action's output that it is being made.
func (a *stageActor) announce(ctx actor.Context, v *visit) {
	if a.dynamic.dispatcher == nil {
		return
	}
	for _, w := range v.to {
		if w.skip > 0 { // what comes that way was made long before
			continue
		}
		to := scheduler.Action{Chunk: w.chunk, Type: v.Type, Microbatch: v.Microbatch}
		ctx.Send(a.peer(w.chunk), &ExpectInput{Header: a.order.Header, Action: to})
	}
}

// expect takes note of an announcement. It is no reason to start anything; what it
// announces, when it comes, is.
func (a *stageActor) expect(m *ExpectInput) {
	if d := a.dynamic.dispatcher; d != nil && a.order != nil && m.Order == a.order.Order && a.runID.accepts(m.Header) {
		d.ExpectInput(m.Action)
	}
}
