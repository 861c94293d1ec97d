package actors

import (
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// stageActor runs one rank's orders.
type stageActor struct {
	spec   *Spec
	rank   int
	cell   *Cell
	tape   header
	stream tensorops.Stream
	owned  *sync.WaitGroup // the run's goroutines
	wire   *Wire
	self   *actor.PID
	root   *actor.RootContext

	stage  Compute
	failed bool

	// What was sent to this stage and not consumed yet, by order, kind, virtual
	// stage and microbatch. The sender's credits bound it.
	inbox map[inboxKey]any
	todo  []any // orders, updates and saves that wait for the one in progress

	// The order in progress, and the number of the last that ended.
	ended   int64
	order   *Order
	row     []scheduler.Action
	next    int // place in row
	credits scheduler.Credits
	asked   int // place in row up to which data was asked for
	ahead   int // microbatches of data asked for and not consumed
	trace   []ActionTime

	// The list that the device executes.
	running  bool
	began    time.Time
	finished time.Time               // end of the last list
	after    func(ctx actor.Context) // what follows its completion
	out      tensorops.Tensor        // its output, to be sent
	batch    *Batch                  // host memory that it reads
	busy     time.Duration
	tied     []stages.TiedGrad
}

// What an inbox entry is.
const (
	inActivation = uint8(scheduler.ForwardEdge)
	inGradient   = uint8(scheduler.BackwardEdge)
	inData       = uint8(100)
	inTied       = uint8(101)
)

type inboxKey struct {
	order      int64
	kind       uint8
	virtual    int32
	microbatch int32
}

// built says that the stage was made.
type built struct {
	stage Compute
	err   error
}

// deviceDone says that the device has finished a list.
type deviceDone struct {
	err error
	end time.Time
}

func (a *stageActor) Receive(ctx actor.Context) {
	defer rethrow()
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.self, a.root = ctx.Self(), ctx.ActorSystem().Root
		a.inbox = make(map[inboxKey]any)
		a.cell.store(Snapshot{Doing: Starting})
	case *Wire:
		a.wire = m
		// Making weights takes seconds for a large model: not in Receive.
		a.owned.Add(1)
		go func() { // ends with Build
			defer a.owned.Done()
			st, err := a.spec.Build(a.rank, a.stream)
			a.root.Send(a.self, &built{st, err})
		}()
	case *built:
		if m.err != nil {
			a.fail(ctx, m.err)
			return
		}
		a.stage = m.stage
		a.cell.store(Snapshot{Wait: WaitOrder, From: schedulerName})
		ctx.Send(a.wire.Scheduler, &StageReady{Header: a.wire.Header, Rank: a.rank})
	case *deviceDone:
		a.completed(ctx, m)
	case *Transfer:
		if !a.keep(ctx, m.Header, inboxKey{m.Order, uint8(m.Kind), m.To, m.Microbatch}, m) {
			m.Tensor.Release()
		}
	case *Data:
		if !a.keep(ctx, m.Header, inboxKey{m.Order, inData, m.Virtual, m.Microbatch}, m) {
			m.Batch.Release()
		}
	case *TiedGradient:
		if !a.keep(ctx, m.Header, inboxKey{m.Order, inTied, 0, int32(m.Grad.Param)}, m) {
			m.Grad.Grad.Release()
		}
	case *Credit:
		if a.tape.accepts(m.Header) && a.order != nil && m.Order == a.order.Order {
			a.credit(m.Kind, m.Edge, 1)
			a.advance(ctx)
		}
	case *Order, *Apply, *SaveState:
		a.todo = append(a.todo, m)
		a.advance(ctx)
	case *actor.Stopping:
		a.drain()
	case StatusRequest:
		ctx.Respond(a.cell.Load())
	}
}

// keep puts an input into the mailbox; false when it is of another epoch or of
// an order that has ended.
func (a *stageActor) keep(ctx actor.Context, h Header, key inboxKey, m any) bool {
	if !a.tape.accepts(h) || h.Order <= a.ended {
		return false
	}
	if _, twice := a.inbox[key]; twice {
		a.fail(ctx, fmt.Errorf("input %+v came twice", key))
		return false
	}
	a.inbox[key] = m
	a.advance(ctx)
	return true
}

// fail reports to the worker, which stops the run.
func (a *stageActor) fail(ctx actor.Context, err error) {
	a.failed = true
	a.cell.store(Snapshot{Doing: Failing})
	ctx.Send(ctx.Parent(), &Failed{Header: a.wire.Header, Actor: stageName(a.rank), Err: err})
}

// submit hands a list to the device; then follows its completion.
func (a *stageActor) submit(l *tensorops.List, then func(ctx actor.Context)) {
	a.running, a.after = true, then
	a.began = time.Now()
	a.stream.Submit(l, func(err error) {
		a.root.Send(a.self, &deviceDone{err, time.Now()})
	})
}

func (a *stageActor) completed(ctx actor.Context, m *deviceDone) {
	a.running, a.finished = false, m.end
	a.busy += m.end.Sub(a.began)
	if a.batch != nil {
		a.batch.Release()
		a.batch = nil
	}
	if m.err != nil {
		a.fail(ctx, m.err)
		return
	}
	then := a.after
	a.after = nil
	then(ctx)
	a.advance(ctx)
}

// advance starts whatever can start.
func (a *stageActor) advance(ctx actor.Context) {
	for !a.running && a.stage != nil && !a.failed {
		if a.order != nil {
			if !a.act(ctx) {
				return
			}
			continue
		}
		if len(a.todo) == 0 {
			return
		}
		m := a.todo[0]
		a.todo = append(a.todo[:0], a.todo[1:]...)
		switch m := m.(type) {
		case *Order:
			a.begin(ctx, m)
		case *Apply:
			a.apply(m)
		case *SaveState:
			a.save(m)
		}
	}
}

// begin takes up an order.
func (a *stageActor) begin(ctx actor.Context, m *Order) {
	a.order, a.row, a.next, a.asked, a.ahead = m, m.Table.Ranks[a.rank], 0, 0, 0
	a.credits.Forward = append(a.credits.Forward[:0], m.Credits.Forward...)
	a.credits.Backward = append(a.credits.Backward[:0], m.Credits.Backward...)
	a.trace = nil
	a.ask(ctx)
}

// ask requests the tokens and targets of the forwards to come, a few ahead.
func (a *stageActor) ask(ctx actor.Context) {
	for ; a.asked < len(a.row) && a.ahead < LimitDataAhead; a.asked++ {
		act := a.row[a.asked]
		if act.Type != scheduler.F || !a.needsData(act) {
			continue
		}
		a.ahead++
		v := int(act.Stage)
		ctx.Send(a.wire.Loader, &DataRequest{Header: a.order.Header, Phase: a.order.Phase, Virtual: act.Stage, Microbatch: act.Microbatch,
			Tokens: a.stage.Embeds(v), Targets: a.stage.Loses(v), ReplyTo: a.self})
	}
}

func (a *stageActor) needsData(act scheduler.Action) bool {
	return act.Type == scheduler.F && (a.stage.Embeds(int(act.Stage)) || a.stage.Loses(int(act.Stage)))
}

// snap describes this stage in the order in progress.
func (a *stageActor) snap(d Doing) Snapshot {
	s := Snapshot{Doing: d}
	if a.order != nil {
		s.Step, s.Phase = a.order.Step, a.order.Phase
		if a.next < len(a.row) {
			s.Action = a.row[a.next]
		}
	}
	return s
}

// credit counts credits of the edge that begins at a virtual stage.
func (a *stageActor) credit(kind scheduler.EdgeKind, edge int32, n int) {
	if kind == scheduler.ForwardEdge {
		a.credits.Forward[edge] += n
	} else {
		a.credits.Backward[edge] += n
	}
}
