package actors

import (
	"fmt"
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// What a stage's actor does for the shadows that it holds, and for its own.

// retire closes the shadows that are elsewhere now. Until the first order, ranks of this process may have read them.
func (a *stageActor) retire() {
	for _, s := range a.retired {
		if err := s.close(); err != nil {
			a.local.log.Error("close a shadow", "rank", s.rank, "err", err)
		}
	}
	a.retired = nil
	a.local.retired[a.rank] = nil
}

// shadowOf returns the shadow of a rank that this rank's actor holds; nil: it holds none.
func (a *stageActor) shadowOf(rank int) *shadow {
	if a.spec.ShadowAt(rank) != a.rank {
		return nil
	}
	return a.local.shadows[rank]
}

// fillShadows asks for the state of the shadows that are built and have none.
func (a *stageActor) fillShadows(ctx actor.Context) {
	for _, s := range a.shadows {
		if !s.prepared() || s.parts != nil {
			continue
		}
		for s.parts = s.stage.Parts(); s.asked < min(len(s.parts), limitShadowReads); {
			a.askPart(ctx, s)
		}
		a.shadowFilled(s)
	}
	a.tellReady(ctx)
}

// askPart asks the rank of a shadow for the next part of its state.
func (a *stageActor) askPart(ctx actor.Context, s *shadow) {
	p := s.parts[s.asked]
	s.asked++
	ctx.Send(a.peers.Stages[s.rank], &ReadState{Header: a.peers.Header, Request: uint64(s.asked), Rank: s.rank, Param: p.Param,
		Part: p.Part, ReplyTo: a.self})
}

// takePart takes a part of the state of a shadow's rank.
func (a *stageActor) takePart(ctx actor.Context, m *RankState) {
	s := a.shadowOf(m.Rank)
	if a.failed || m.placed || !a.runID.accepts(m.Header) || s == nil || s.ready || m.Request == 0 || m.Request > uint64(s.asked) {
		m.release()
		return
	}
	if m.Err != nil {
		a.fail(ctx, a.step, fmt.Errorf("copy the state of rank %d for its shadow: %w", s.rank, m.Err))
		return
	}
	part := s.parts[m.Request-1]
	a.addJob(s, shadowJob{change: true, record: func(l *tensorops.List) {
		if err := s.stage.Put(l, part, m.Tensor); err != nil {
			l.Fail(err)
		}
	}, then: func(ctx actor.Context) {
		m.release()
		if s.put++; s.asked < len(s.parts) {
			a.askPart(ctx, s)
		}
		a.shadowFilled(s)
		a.tellReady(ctx)
	}})
}

// shadowFilled notes that a shadow has all of its rank's state, if it does.
func (a *stageActor) shadowFilled(s *shadow) {
	if !s.ready && s.put == len(s.parts) {
		s.ready, s.settled, s.parts = true, a.peers.Step, nil
	}
}

// tellReady reports that this rank and the shadows here have their state.
func (a *stageActor) tellReady(ctx actor.Context) {
	if a.failed || a.reported || a.stage == nil {
		return
	}
	if i := slices.IndexFunc(a.shadows, func(s *shadow) bool { return !s.ready }); i >= 0 {
		a.cell.store(event.Snapshot{Step: a.step, Doing: event.Starting, Wait: event.WaitState, From: a.spec.stageName(a.shadows[i].rank)})
		return
	}
	a.reported = true
	a.cell.store(event.Snapshot{Step: a.step, Wait: event.WaitOrder, From: schedulerName})
	m := &StageReady{Header: a.peers.Header, Rank: a.rank}
	if a.spec.Read != nil {
		m.Read = a.spec.Read(a.rank)
	}
	ctx.Send(a.peers.Scheduler, m)
}

// takeGradient takes finished gradients of a shadow's rank.
func (a *stageActor) takeGradient(ctx actor.Context, m *StepGradient) {
	s := a.shadowOf(m.Rank)
	if a.failed || !a.runID.accepts(m.Header) || s == nil || m.Step <= s.settled {
		m.release()
		return
	}
	if err := s.take(m); err != nil {
		m.release()
		a.fail(ctx, a.step, fmt.Errorf("gradients of rank %d for its shadow: %w", m.Rank, err))
		return
	}
	a.tellShadowed(ctx, s)
}

// tellShadowed reports that the gradients of the next step have all arrived, if they have: when the update before is made, so that a
// decided step is at most one ahead of the shadow.
func (a *stageActor) tellShadowed(ctx actor.Context, s *shadow) {
	for _, step := range s.steps {
		if step.step == s.settled+1 && step.whole() {
			ctx.Send(a.peers.Scheduler, &Shadowed{Header: a.runID.header(step.step, step.order), Rank: s.rank})
		}
	}
}

// stepOf returns the gradients of an order; nil: none have arrived.
func (s *shadow) stepOf(order int64) *shadowStep {
	for _, step := range s.steps {
		if step.order == order {
			return step
		}
	}
	return nil
}

// take checks gradients and takes them. After an error, the message still owns them.
func (s *shadow) take(m *StepGradient) error {
	if !s.ready {
		return fmt.Errorf("%w: it has no state yet", stages.ErrInput)
	}
	step := s.stepOf(m.Order)
	if step == nil && len(s.steps) >= limitShadowSteps {
		return fmt.Errorf("%w: those of %d steps wait already, the limit", stages.ErrInput, limitShadowSteps)
	}
	if step == nil {
		step = &shadowStep{step: m.Step, order: m.Order, grads: make([]tensorops.Tensor, s.stage.Len())}
	}
	seen := make(map[int]bool, len(m.Grads))
	for _, g := range m.Grads {
		at, err := s.stage.Place(g)
		if err != nil {
			return err
		}
		if step.grads[at].Valid() || seen[at] {
			return fmt.Errorf("%w: that of parameter %d arrived twice", stages.ErrInput, g.Param)
		}
		seen[at] = true
	}
	for _, g := range m.Grads {
		at, _ := s.stage.Place(g) // checked
		step.grads[at] = g.Grad
	}
	if step.came += len(m.Grads); s.stepOf(m.Order) == nil {
		s.steps = append(s.steps, step)
	}
	return nil
}

// foldShadows makes the update of a decided step in all shadows here.
func (a *stageActor) foldShadows(ctx actor.Context, m *Apply) {
	for _, s := range a.shadows {
		step := s.stepOf(m.Order)
		if step == nil || !step.whole() {
			a.fail(ctx, a.step, fmt.Errorf("step %d was decided before the gradients of rank %d had reached its shadow", m.Step, s.rank))
			return
		}
		a.addJob(s, shadowJob{fold: true, change: true, record: func(l *tensorops.List) {
			if !m.Skip {
				s.stage.Fold(l, m.Update, step.grads)
			}
		}, then: func(ctx actor.Context) {
			step.release()
			s.steps = slices.DeleteFunc(s.steps, func(x *shadowStep) bool { return x == step })
			if s.settled = m.Step; !a.failed {
				a.tellShadowed(ctx, s)
			}
		}})
	}
}

// sendShadow answers a request for the state of a rank from its shadow.
func (a *stageActor) sendShadow(ctx actor.Context, m *ReadState) {
	answer := &RankState{Header: m.Header, Request: m.Request, Rank: a.rank, Shadow: m.Shadow}
	s := a.shadowOf(m.Shadow - 1)
	for _, old := range a.retired {
		if s == nil && old.rank == m.Shadow-1 {
			s = old
		}
	}
	if s == nil || !s.ready {
		answer.Err = fmt.Errorf("%w: the shadow of rank %d is not complete", errTarget, m.Shadow-1)
		ctx.Send(m.ReplyTo, answer)
		return
	}
	// What is retired is freed with the first order, when the lane may still have the message.
	answer.lent = a.lends(m) && !slices.Contains(a.retired, s)
	a.addJob(s, shadowJob{record: func(l *tensorops.List) {
		answer.Tensor, answer.Err = s.stage.CopyState(l, a.copiesTo(answer), m.Param, m.Part)
	}, then: func(ctx actor.Context) { ctx.Send(m.ReplyTo, answer) }})
}

// addJob gives a shadow a list to compute.
func (a *stageActor) addJob(s *shadow, j shadowJob) {
	s.jobs = append(s.jobs, j)
	a.nextJob(s)
}

func (a *stageActor) nextJob(s *shadow) {
	if s.busy || len(s.jobs) == 0 {
		return
	}
	s.busy = true
	l := s.stream.NewList()
	s.jobs[0].record(l)
	s.stream.Submit(l, func(err error) { a.root.Send(a.self, &shadowDone{s, err}) })
}

// jobDone handles the completion of a shadow's list.
func (a *stageActor) jobDone(ctx actor.Context, m *shadowDone) {
	s := m.of
	j := s.jobs[0]
	s.jobs, s.busy = slices.Delete(s.jobs, 0, 1), false
	switch {
	case m.err != nil:
		if j.change {
			s.broken = m.err
		}
		s.jobs = nil
		if !a.failed {
			a.fail(ctx, a.step, fmt.Errorf("the shadow of rank %d: %w", s.rank, m.err))
		}
	case a.failed && !j.fold:
	default:
		j.then(ctx)
	}
	a.nextJob(s)
	a.tellHalted(ctx)
}

// endShadows drops what the shadows need not do any more, since the attempt ends. Decided steps are finished.
func (a *stageActor) endShadows() {
	for _, s := range a.shadows {
		first := 0
		if s.busy {
			first = 1
		}
		rest := slices.DeleteFunc(slices.Clone(s.jobs[first:]), func(j shadowJob) bool { return !j.fold })
		s.jobs = append(s.jobs[:first], rest...)
	}
}

// sendGradients sends the finished gradients of the step to the shadow, if there is one: the numbers where they are, because they do not
// change before the decision, which waits for the shadow. For a shadow in this process they are copied.
func (a *stageActor) sendGradients(ctx actor.Context, h Header) error {
	holder := a.spec.ShadowAt(a.rank)
	if holder < 0 {
		return nil
	}
	stage, ok := a.stage.(GradientGiver)
	if !ok {
		return fmt.Errorf("%w: a %T has no Gradients for its shadow", ErrSpec, a.stage)
	}
	m, bytes := a.newStepGradient(h), 0
	for i, g := range stage.Gradients() {
		if size := g.Grad.Len() * g.Grad.DType().Size(); i > 0 && bytes+size > gradientBytes {
			ctx.Send(a.peers.Stages[holder], m)
			m, bytes = a.newStepGradient(h), size
		} else {
			bytes += size
		}
		if a.spec.host(holder) == "" {
			own, err := tensorops.NewTensor(a.local.host, g.Grad.DType(), g.Grad.Shape()...)
			if err != nil {
				m.release()
				return fmt.Errorf("copy the gradients for the shadow: %w", err)
			}
			copy(tensorops.Bytes(own), tensorops.Bytes(g.Grad))
			g.Grad = own
		}
		m.Grads = append(m.Grads, g)
	}
	ctx.Send(a.peers.Stages[holder], m)
	return nil
}

func (a *stageActor) newStepGradient(h Header) *StepGradient {
	return &StepGradient{Header: h, Rank: a.rank, lent: a.spec.host(a.spec.ShadowAt(a.rank)) != ""}
}

// GradientGiver is a Compute whose optimizer's update another process can repeat. Gradients is called after the norms of a step.
type GradientGiver interface {
	Gradients() []stages.Gradient
}
