package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
)

// dynamic is a stage's part of a work-conserving order: what to do next is its
// dispatcher's to say, by the priorities that came with the order.
type dynamic struct {
	dispatcher *scheduler.Dispatcher
	priorities *scheduler.Priorities // that the dispatcher is of
	expect     expectations          // of this rank, through all orders
	began      time.Time             // the dispatcher's clock counts seconds from here
	feeds      []feed
	chosen     [1]scheduler.Action
	can        func(scheduler.Action) bool
}

// feed is a stage that takes tokens or targets: one data message for each forward, in
// the order of microbatches.
type feed struct {
	stage        int32
	asked, taken int32
}

// expectations are what a rank's actions took so far, in seconds, by stage and type;
// 0: unknown.
type expectations []float64

func newExpectations(stages int) expectations {
	return make(expectations, stages*int(scheduler.B+1))
}

func (e expectations) of(a scheduler.Action) *float64 {
	return &e[int(a.Chunk)*int(scheduler.B+1)+int(a.Type)]
}

// costs are what a Dispatcher asks for, of its own rank.
func (e expectations) costs(_ int, a scheduler.Action) float64 { return *e.of(a) }

// learn takes note of how long an action took; later ones weigh more.
func (e expectations) learn(a scheduler.Action, took time.Duration) {
	const weight = 0.2
	to := e.of(a)
	if *to == 0 {
		*to = took.Seconds()
	}
	*to += weight * (took.Seconds() - *to)
}

// ExpectInput tells a stage that the input of one of its actions is being made, and in what
// time it is expected. In a work-conserving order a stage may wait for that.
type ExpectInput struct {
	Header
	Action scheduler.Action
	In     time.Duration
}

// beginDynamic prepares the choices of an order.
func (a *stageActor) beginDynamic() {
	d := &a.dynamic
	if a.order.Priorities == nil {
		d.dispatcher = nil
		return
	}
	if d.priorities != a.order.Priorities {
		d.priorities, d.dispatcher = a.order.Priorities, nil
	}
	if d.dispatcher == nil {
		if d.expect == nil {
			d.expect = newExpectations(a.order.Table.NumChunks)
		}
		d.dispatcher = d.priorities.Dispatcher(a.rank)
		d.dispatcher.Expect(d.expect.costs)
	}
	d.dispatcher.Reset()
	d.began = time.Now()
	d.can = a.canBegin
	d.feeds = d.feeds[:0]
	for v := range a.order.Table.NumChunks {
		if a.order.Table.RankOf(v) == a.rank && (a.stage.NeedsTokens(v) || a.stage.ComputesLoss(v)) {
			d.feeds = append(d.feeds, feed{stage: int32(v)})
		}
	}
	for key := range a.inbox { // what came before the order
		if key.order == a.order.Order && key.kind <= inGradient {
			d.dispatcher.Arrived(inputOf(key))
		}
	}
}

// inputOf is the action that an activation or a gradient is for.
func inputOf(key inboxKey) scheduler.Action {
	act := scheduler.Action{Chunk: key.chunk, Type: scheduler.F, Microbatch: key.microbatch}
	if key.kind == inGradient {
		act.Type = scheduler.B // or I: an input serves either
	}
	return act
}

// canBegin says whether an action has what the dispatcher doesn't know of: its tokens, and
// a credit for its output.
func (a *stageActor) canBegin(act scheduler.Action) bool {
	if e := a.edges(act); e.out && a.credits.Of(e.kind, int(act.Chunk)) <= 0 {
		return false
	}
	_, there := a.inbox[inboxKey{a.order.Order, inData, act.Chunk, act.Microbatch}]
	return there || !a.needsData(act)
}

// choose returns the actions to begin now, none if the stage has to wait.
func (a *stageActor) choose() []scheduler.Action {
	if a.dynamic.dispatcher == nil {
		return a.row[a.next : a.next+scheduler.Width(a.row, a.next)]
	}
	act, ok := a.dynamic.dispatcher.Next(time.Since(a.dynamic.began).Seconds(), a.dynamic.can)
	if !ok {
		return nil
	}
	a.dynamic.chosen[0] = act
	return a.dynamic.chosen[:]
}

// blocked describes what keeps the first action by priority from starting.
func (a *stageActor) blocked() Snapshot {
	act, _ := a.dynamic.dispatcher.First()
	v := a.visit(act)
	s := a.missing(&v)
	if s.Wait == WaitNothing {
		s.Wait, s.From = WaitRoom, stageName(a.rank)
	}
	return s
}

// askFeeds requests the data of the next forwards of each stage that takes some.
func (a *stageActor) askFeeds(ctx actor.Context) {
	for i := range a.dynamic.feeds {
		f := &a.dynamic.feeds[i]
		for ; f.asked-f.taken < LimitDataAhead && int(f.asked) < a.order.Table.Microbatches; f.asked++ {
			a.request(ctx, f.stage, f.asked)
		}
	}
}

// tookData takes note that a stage's next data has been taken.
func (a *stageActor) tookData(ctx actor.Context, stage int32) {
	if a.dynamic.dispatcher == nil {
		a.ahead--
		a.ask(ctx)
		return
	}
	for i := range a.dynamic.feeds {
		if a.dynamic.feeds[i].stage == stage {
			a.dynamic.feeds[i].taken++
		}
	}
	a.askFeeds(ctx)
}

// announce tells the stage that waits for an action's output when to expect it.
func (a *stageActor) announce(ctx actor.Context, v *visit) {
	expected := *a.dynamic.expect.of(v.Action)
	if !v.edges.out || expected == 0 {
		return
	}
	to := scheduler.Action{Chunk: v.to, Type: v.Type, Microbatch: v.Microbatch}
	ctx.Send(a.peer(v.to), &ExpectInput{Header: a.order.Header, Action: to, In: time.Duration(expected * float64(time.Second))})
}

// coming takes note of an announcement. It is no reason to start anything; what it
// announces, when it comes, is.
func (a *stageActor) coming(m *ExpectInput) {
	if c := a.dynamic.dispatcher; c != nil && a.order != nil && m.Order == a.order.Order && a.runID.accepts(m.Header) {
		c.ExpectInput(m.Action, (time.Since(a.dynamic.began) + m.In).Seconds())
	}
}
