package actors

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// stageActor runs one rank's orders. It takes messages, starts whatever can start, and handles the
// device's completions; the tensors of an action arrive and leave over its edges.
type stageActor struct {
	part
	local  *local
	rank   int
	at     grid.Coordinates // the rank's place in the grid
	stream tensorops.Stream
	peers  *Peers
	self   *actor.PID
	root   *actor.RootContext

	state    stageState
	stopping bool    // stop after it has halted
	stage    Compute // set when the stage is built
	step     int64   // step of the order, update or save that was started last

	// Tensors that were sent to this stage and not consumed yet, by order, kind, chunk and
	// microbatch. The sender's credits limit them.
	inbox  map[inboxKey]owner
	todo   []any         // orders and saves that wait for the current one
	copies []*weightCopy // requested copies
	reads  []*ReadState  // requests of a rank with the same state

	progress
	edges  edges
	device deviceQueue
	tied   tiedParts
	update stepUpdate
	kept   keptStates

	shadows  []*shadow // that this actor holds
	retired  []*shadow // that it has held in the last attempt; a rank of this process may read them until the first order
	reported bool      // that it is ready
	told     bool      // that it has halted
}

// progress is the progress of a stage in its order.
type progress struct {
	ended  int64 // the number of the last order that ended
	order  *Order
	row    []scheduler.Action
	next   int         // position in row
	alike  bool        // see Spec.alike
	asked  []chunkData // by chunk
	losses []Loss
	log    *actionLog // nil: actions are not timed
}

// The kinds of inbox entries.
const (
	inActivation = uint8(scheduler.ForwardEdge)
	inGradient   = uint8(scheduler.BackwardEdge)
	inData       = uint8(100)
	inTied       = uint8(101)
)

type inboxKey struct {
	order      int64
	kind       uint8
	chunk      int32 // for a tied gradient, the sending rank
	microbatch int32 // for a tied gradient, the parameter
	slot       int32 // for an activation or gradient, its index among the chunk's
	part       int32 // for inputs from several ranks, the index of the piece
}

// built says that the stage was built.
type built struct {
	stage       Compute
	addressable bool // see edgeMemory
	err         error
}

// deviceDone says that the device has finished a list.
type deviceDone struct {
	err error
	end time.Time
}

func (a *stageActor) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.self, a.root = ctx.Self(), ctx.ActorSystem().Root
		a.inbox = make(map[inboxKey]owner)
		a.kept.open()
		a.cell.store(event.Snapshot{Doing: event.Starting})
	case *Peers:
		a.peers, a.step, a.update.settled = m, m.Step, m.Step
		a.move(ctx, peersKnown)
		a.fillShadows(ctx) // those that were prepared
		a.build()
	case *built:
		if m.err == nil {
			a.stage, a.edges.memory.addressable = m.stage, m.addressable
		}
		a.move(ctx, atRest)
		switch {
		case a.failed:
		case m.err != nil:
			a.fail(ctx, a.step, m.err)
		default:
			a.device.most = a.queuesLists()
			a.fillShadows(ctx)
			a.advance(ctx)
		}
	case *deviceDone:
		a.listCompleted(ctx, m)
	case *Transfer:
		a.keep(ctx, m.Header, inboxKey{m.Order, uint8(m.Kind), m.To, m.Microbatch, m.Slot, m.Part}, m)
	case *Data:
		a.keep(ctx, m.Header, inboxKey{m.Order, inData, m.Chunk, m.Microbatch - a.first(), 0, 0}, m)
	case *TiedGradient:
		a.keep(ctx, m.Header, inboxKey{m.Order, inTied, m.From, int32(m.Grad.Param), 0, 0}, m)
	case *Credit:
		if a.runID.accepts(m.Header) && a.order != nil && m.Order == a.order.Order {
			*a.edges.credit(m.Kind, m.Edge, m.Skip)++
			a.advance(ctx)
		}
	case *Order:
		if m.Speculative == nil {
			a.restartClock()
		}
		a.todo = append(a.todo, m)
		a.advance(ctx)
	case *Apply:
		a.update.decision = m
		if !a.failed {
			a.foldShadows(ctx, m)
		}
		a.advance(ctx)
	case *StepGradient:
		a.takeGradient(ctx, m)
	case *RankState:
		a.takePart(ctx, m)
	case *shadowDone:
		a.jobDone(ctx, m)
	case *SaveState:
		a.todo = append(a.todo, m)
		a.advance(ctx)
	case *ReadState:
		a.takeRead(ctx, m)
	case *weightCopy:
		a.copies = append(a.copies, m)
		a.advance(ctx)
	case *WriteState:
		a.writeKept(ctx, m)
	case *ownWritten:
		a.keptWritten(ctx, m)
	case *SendState:
		a.sendKept(ctx, m)
	case *DropState:
		a.dropKept(m.Step)
	case halt:
		a.failed = true
		a.endGroups()
		a.endShadows()
		a.move(ctx, haltAsked)
	case leave:
		a.failed, a.stopping, a.update.keep = true, true, m.keep
		a.endGroups()
		a.endShadows()
		a.kept.quit()
		if a.told {
			a.reportEnd()
			ctx.Stop(ctx.Self())
		}
		a.move(ctx, haltAsked)
	case *actor.Stopping:
		a.kept.quit()
	}
}

// endGroups ends the waits of this process's ranks in their groups: the run ends, and the others
// may never arrive. In an orderly end no rank waits.
func (a *stageActor) endGroups() {
	if a.spec.FailGroups != nil {
		a.spec.FailGroups(errEnding)
	}
}

// errEnding: the run ends, so no rank waits for the others of a group any more.
var errEnding = errors.New("the run ends")

// build builds the stage in a goroutine. For a large model the weights take seconds, too long for
// Receive.
func (a *stageActor) build() {
	a.local.builders.Add(1)
	var shadows []*shadow
	for _, s := range slices.Concat(a.shadows, a.retired) {
		if !s.prepared() { // that one gets its state already
			shadows = append(shadows, s)
		}
	}
	go func() { // ends with Build
		defer a.local.builders.Done()
		m := &built{}
		defer a.root.Send(a.self, m)
		defer caught(&m.err)
		if m.addressable, m.err = addressable(a.stream.Arena()); m.err == nil {
			m.stage, m.err = a.local.buildStage(a.rank, a.stream)
			a.local.computes[a.rank] = m.stage
		}
		for _, s := range shadows {
			if m.err == nil {
				m.err = s.build(a.spec)
			}
		}
	}()
}

// keep puts an input into the mailbox, unless it is not needed: it belongs to another attempt or to
// an order that has ended, or the run ends.
func (a *stageActor) keep(ctx actor.Context, h Header, key inboxKey, m owner) {
	if a.failed || !a.runID.accepts(h) || h.Order <= a.ended {
		m.release()
		return
	}
	if _, twice := a.inbox[key]; twice {
		m.release()
		a.fail(ctx, a.step, fmt.Errorf("input %+v arrived twice", key))
		return
	}
	a.inbox[key] = m
	a.advance(ctx)
}

// restartClock resets the device time to zero.
func (a *stageActor) restartClock() { a.device.busy, a.device.counted = 0, time.Now() }

// advance starts whatever can start.
func (a *stageActor) advance(ctx actor.Context) {
	for !a.failed && (a.state == stageResting || a.mayQueue()) {
		switch {
		case len(a.reads) > 0 && a.state == stageResting:
			a.sendState(ctx)
		case len(a.copies) > 0 && (a.update.decision == nil || a.copies[0].Step < a.update.decision.Step):
			a.copyWeights(ctx)
		case a.update.decision != nil:
			a.applyDecision()
		case a.order != nil:
			if !a.act(ctx) {
				return
			}
		case len(a.todo) == 0:
			return
		default:
			a.takeNext(ctx)
		}
	}
}

// takeNext turns to the message that arrived first.
func (a *stageActor) takeNext(ctx actor.Context) {
	m := a.todo[0]
	if o, ok := m.(*Order); ok && a.mustSpeculate(o) {
		a.speculate(o)
		return
	}
	a.todo = append(a.todo[:0], a.todo[1:]...)
	switch m := m.(type) {
	case *Order:
		a.beginOrder(ctx, m)
	case *SaveState:
		a.save(m)
	}
}

// beginOrder begins an order.
func (a *stageActor) beginOrder(ctx actor.Context, m *Order) {
	if a.retired != nil {
		a.retire()
	}
	if a.local.trim(); m.Step > a.spec.Start.Step+1 { // the first step has taken what it needs
		a.local.endSpare()
	}
	a.order, a.row, a.next = m, m.row(a.at[grid.Pipeline]), 0
	a.step, a.alike = m.Step, a.spec.alike()
	a.losses, a.log = nil, nil
	if m.Trace {
		a.log = newActionLog(m.Header, m.Phase, len(a.row), a.cell.actions.Load())
	}
	a.cell.actions.Store(a.log)
	if m.Table == nil { // nothing to do except to report
		return
	}
	if len(a.asked) == 0 { // training and validation use the same chunks
		a.asked = make([]chunkData, m.Table.NumChunks)
		a.edges.prepare(a.spec, m.Table, a.rank)
	}
	a.edges.grant(&m.Credits)
	for _, chunk := range a.edges.own {
		a.asked[chunk] = chunkData{}
		a.ask(ctx, chunk)
	}
}

// chunkData is what a chunk has requested of tokens and targets.
type chunkData struct {
	row   int // position in the row up to which they were requested
	ahead int // requested microbatches that are not consumed
}

// ask requests the tokens and targets of a chunk's next forwards, several at a time: each request
// wakes the loader, which takes a core from the devices.
func (a *stageActor) ask(ctx actor.Context, chunk int32) {
	d := &a.asked[chunk]
	if d.ahead > limitDataAhead/2 {
		return
	}
	for ; d.row < len(a.row) && d.ahead < limitDataAhead; d.row++ {
		if act := a.row[d.row]; act.Chunk == chunk && a.needsData(act) {
			a.request(ctx, chunk, act.Microbatch)
			d.ahead++
		}
	}
}

// first returns the number of microbatches before the replica's own in the current order, for which
// data has been requested.
func (a *stageActor) first() int32 {
	if a.order == nil {
		return 0
	}
	return int32(a.order.First)
}

// request requests a microbatch from the loader.
func (a *stageActor) request(ctx actor.Context, chunk, microbatch int32) {
	ctx.Send(a.peers.Loader, &DataRequest{Header: a.order.Header, Phase: a.order.Phase, Chunk: chunk, Microbatch: microbatch + a.first(),
		Tokens: a.stage.NeedsTokens(int(chunk)), Targets: a.stage.NeedsTargets(int(chunk)), Starts: a.needsStarts(int(chunk)),
		Fields:  a.stage.Fields(int(chunk)),
		ReplyTo: a.self})
}

// needsStarts reports whether a chunk needs to know where documents start.
func (a *stageActor) needsStarts(chunk int) bool { return a.spec.Packed && a.stage.NeedsStarts(chunk) }

func (a *stageActor) needsData(act scheduler.Action) bool {
	chunk := int(act.Chunk)
	return act.Type == scheduler.F && (a.stage.NeedsTokens(chunk) || a.stage.NeedsTargets(chunk) || a.needsStarts(chunk) ||
		len(a.stage.Fields(chunk)) > 0)
}

// snap returns a snapshot of this stage in the current order.
func (a *stageActor) snap(d event.Doing) event.Snapshot {
	s := event.Snapshot{Doing: d}
	if a.order != nil {
		s.Step, s.Phase = a.order.Step, a.order.Phase
		if a.next < len(a.row) {
			s.Action = a.row[a.next]
		}
	}
	return s
}
