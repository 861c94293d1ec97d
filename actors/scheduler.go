package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// schedulerActor drives the run: it sends orders, receives reports, and makes one decision for each
// step.
type schedulerActor struct {
	part
	tables
	local *local
	peers *Peers

	carried
	ready barrier // stages with weights
	read  []int64 // by rank, of StageReady

	// The order in progress.
	phase  event.Phase // 0: none
	order  int64
	began  time.Time
	spent  time.Duration // time of the process's cores at the start
	losses *stages.Accumulator
	done   barrier
	// shadowed waits for the shadows that have the step's gradients; without a shadow a rank counts at once. reported is when done was
	// complete.
	shadowed barrier
	reported time.Time
	norms    []float64 // by parameter and slot: see Spec.slots
	logs     bool      // the step's norms are logged
	// Like norms, for the weights, in a step whose norms are logged.
	weights []float64
	routers [][]stages.RouterStats // by rank
	busy    time.Duration
	trace   [][]event.ActionTime
	clocks  []event.Clock // clocks of the trace, by rank; nil: all ranks are in this process

	// With post-validation: the order that was sent before the end of the step, nil if none was;
	// and the update that the step is predicted to make.
	ahead     *Order
	predicted stages.Update

	saving    int           // checkpoints in progress
	savingNow bool          // stages still copy their state for one
	copying   int           // copies of a validation's weights in progress
	recording int           // number of steps whose line is not written yet
	applied   barrier       // stages that have answered the last Apply
	copies    []*weightCopy // copies that wait for the end of the step
	pause     bool
	stop      bool
	saveNow   bool
	again     saveAgain
	// regroup is a request to end the attempt with a checkpoint; nil: none. regroupWaits: if that checkpoint can't be
	// written, the attempt continues.
	regroup      *regroup
	regroupWaits bool
	between      func() *event.RegroupEvent // ends the attempt before the next order; nil: there is no such request
	ended        bool
}

// tables holds what the scheduler actor knows of a run's tables.
type tables struct {
	replicas    []replicaTables
	idealBubble float64 // percent
}

// replicaTables holds what follows from the tables of a replica.
type replicaTables struct {
	trainCredits, evalCredits scheduler.Credits
}

// order returns the order for a replica.
func (t *tables) order(s *Spec, replica int, o Order) *Order {
	r, of := s.replicas()[replica], &t.replicas[replica]
	o.Replica, o.Table, o.First = replica, r.table(o.Phase), r.first(o.Phase)
	if o.Phase == event.Eval {
		o.Credits = of.evalCredits
	} else {
		o.Credits = of.trainCredits
	}
	return &o
}

// analyse checks a run's tables, before anything of the run exists.
func (s *Spec) analyse() (t tables, err error) {
	if err := s.check(); err != nil {
		return t, err
	}
	return s.analyseTables()
}

// analyseTables derives everything that follows from a run's tables alone.
func (s *Spec) analyseTables() (t tables, err error) {
	for _, replica := range s.replicas() {
		var of replicaTables
		r, tl, err := scheduler.Analyse(replica.Table)
		if err != nil {
			return t, err
		}
		of.trainCredits = r.Credits
		t.idealBubble = max(t.idealBubble, 100*tl.BubbleFraction)
		if replica.EvalTable != nil {
			if r, err = scheduler.Check(replica.EvalTable); err != nil {
				return t, fmt.Errorf("validation: %w", err)
			}
			of.evalCredits = r.Credits
		}
		t.replicas = append(t.replicas, of)
	}
	return t, nil
}

func newSchedulerActor(l *local, t tables) *schedulerActor {
	p := l.part(schedulerName)
	s := p.spec
	a := &schedulerActor{part: p, tables: t, local: l, ready: newBarrier(s), done: newBarrier(s), applied: newBarrier(s),
		shadowed: newBarrier(s), read: make([]int64, s.ranks()),
		carried: carried{state: s.Start, target: Target{Step: s.Start.Step}, evaled: -1, saved: -1}}
	for rank := range s.ranks() {
		a.applied.mark(rank) // no Apply was sent yet
	}
	a.changes = newChanges(s.Changes, s.Start.Step)
	a.losses = stages.NewAccumulator()
	a.targets = float64(s.Sequences) * float64(s.Context) // assumed: every position has one
	if a.state.Step > 0 {
		// A resumed run has already validated and saved this step.
		a.evaled, a.saved, a.saves.written = a.state.Step, a.state.Step, a.state.Step
	}
	if s.Carry != nil {
		a.resume(s.Carry)
	}
	if s.Rescue != nil {
		a.regroup = &regroup{RegroupEvent: *s.Rescue}
	}
	return a
}

func (a *schedulerActor) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	switch m := ctx.Message().(type) {
	case *Peers:
		a.peers = m
		a.cell.store(a.ready.snapshot(a.state.Step, 0))
		if c := a.spec.Carry; c != nil && c.finished != nil {
			a.written(ctx, c.finished)
		}
		a.takeRequests(ctx)
	case *StageReady:
		if a.runID.accepts(m.Header) {
			a.read[m.Rank] = m.Read
			was := a.ready.all()
			if a.ready.mark(m.Rank); !was && a.ready.all() {
				a.local.renewing.Store(false)
				a.local.ready.Store(true)
				if a.spec.Ready != nil {
					if e := a.spec.Ready(a.read); e != nil {
						ctx.Send(a.peers.Metrics, &publish{e})
					}
				}
			}
			a.proceed(ctx)
		}
	case *StageDone:
		if a.current(m.Header) {
			a.stageDone(ctx, m)
		}
	case *Shadowed:
		if a.current(m.Header) {
			a.shadowed.mark(m.Rank)
			a.reports(ctx, m.Step)
		}
	case *Applied:
		if a.runID.accepts(m.Header) {
			a.applied.mark(m.Rank)
			a.proceed(ctx)
		}
	case *recorded:
		a.recording--
		a.proceed(ctx)
	case *StateCopied:
		if a.runID.accepts(m.Header) {
			a.savingNow = false
			a.proceed(ctx)
		}
	case *evalCopied:
		if a.runID.accepts(m.Header) {
			a.copying--
			a.proceed(ctx)
		}
	case *Saved:
		if a.runID.accepts(m.Header) {
			a.written(ctx, m)
			a.proceed(ctx)
		}
	case *notSaved:
		if a.runID.accepts(m.Header) {
			a.notSaved(ctx, m)
			a.proceed(ctx)
		}
	case *saveNextTry:
		a.again.pending, a.saveMissed = false, true
		a.saveNow = a.saveNow || len(a.saves.wanted) > 0
		a.proceed(ctx)
	case *weightCopy:
		a.takeWeights(ctx, m)
		a.proceed(ctx)
	case Request:
		a.request(ctx, m)
		a.proceed(ctx)
	case *regroup:
		a.regroups(m)
		a.proceed(ctx)
	case *between:
		a.between = m.end
		a.proceed(ctx)
	case *journalled:
		a.inJournal(ctx, m)
		a.proceed(ctx)
	case *actor.Stopping:
		a.again.stop()
		last := &lastState{state: a.state, updates: a.updates}
		if a.local.keeps.Load() {
			last.carry = a.carry()
		}
		if a.last != nil && last.carry == nil { // the step is decided, and the run's state includes it
			a.writeRecord(ctx)
		}
		ctx.Send(ctx.Parent(), last)
	}
}

// current reports whether a message belongs to the order in progress.
func (a *schedulerActor) current(h Header) bool {
	return a.runID.accepts(h) && a.phase != 0 && h.Order == a.order
}

func (a *schedulerActor) header() Header {
	return a.runID.header(a.state.Step, a.order)
}

// proceed decides what comes next, between two orders.
func (a *schedulerActor) proceed(ctx actor.Context) {
	if a.phase != 0 || a.ended || a.failed || a.savingNow {
		return
	}
	step := a.state.Step
	a.takeDue()
	if !a.ready.all() {
		a.cell.store(a.ready.snapshot(step, 0))
		return
	}
	a.copyWeights(ctx)
	if a.changes.writing > 0 && a.changes.hold <= step {
		a.waitDisk(metricsName)
		return
	}
	saveDue := a.saveDue(ctx)
	a.regroupAt(saveDue)
	diverged := a.diverged()
	last := step >= a.spec.Steps || a.leaves() || a.impatient() || diverged != nil
	if !last && a.between != nil {
		if a.endBetween(); a.ended {
			return
		}
		last, saveDue = true, a.saveDue(ctx)
	}
	if saveDue && a.again.waits(last) {
		if last {
			a.waitDisk(checkpointName)
			return
		}
		saveDue = false
	}
	bestDue := !saveDue && a.bestDue()
	saves, ending := saveDue || bestDue, !saveDue && !bestDue && last
	switch {
	case diverged == nil && a.evalDue():
		a.send(ctx, event.Eval)
	case a.last != nil:
		a.writeRecord(ctx)
		a.proceed(ctx)
	case a.recording > 0 && (saves || ending) || a.recording >= LimitRecords:
		// The line of a step comes before its checkpoint.
		a.waitDisk(metricsName)
	case a.saving > 0 && ending || a.saving >= limitSaves && saves:
		a.waitDisk(checkpointName)
	case saves:
		a.save(ctx, bestDue)
	case ending && a.copying > 0:
		a.cell.store(event.Snapshot{Step: step, Doing: event.Copying})
	case ending && !a.applied.all():
		a.cell.store(a.applied.snapshot(step, 0))
	case ending:
		a.finish(ctx, diverged)
	case a.pause:
		// Before the event: a reader of the event must find the status paused.
		a.cell.store(event.Snapshot{Step: step, Doing: event.Paused})
		if !a.paused {
			a.paused = true
			ctx.Send(a.peers.Metrics, &publish{event.PauseEvent{Step: step, Paused: true}})
		}
	default:
		a.send(ctx, event.Train)
	}
}

func (a *schedulerActor) waitDisk(from string) {
	a.cell.store(event.Snapshot{Step: a.state.Step, Doing: event.Waiting, Wait: event.WaitDisk, From: from})
}

// evalDue: before the first step, every EvalEvery steps, and after the last. Also where the run is
// to stop, since a run that resumes there takes the step as validated. Only a run that starts from
// step 0 begins with the validation.
func (a *schedulerActor) evalDue() bool {
	step := a.state.Step
	if a.spec.EvalTable == nil || a.evaled == step || a.spec.Rescue != nil {
		return false
	}
	switch step {
	case a.spec.Steps:
		return true
	case 0:
		return !a.leaves()
	}
	return a.evaluatesAt(step)
}

// evaluatesAt reports whether EvalEvery selects a step, savesAt whether CheckpointEvery does.
func (a *schedulerActor) evaluatesAt(step int64) bool {
	return a.spec.EvalTable != nil && a.spec.EvalEvery > 0 && step%a.spec.EvalEvery == 0
}

func (a *schedulerActor) savesAt(step int64) bool {
	return a.spec.CheckpointEvery > 0 && step%a.spec.CheckpointEvery == 0
}

// saveDue: every CheckpointEvery steps, at the end, on request, and when the validation loss is the
// best so far. After a skipped step, a checkpoint that was not requested waits: if the weights have
// become useless, it would replace one with good weights.
func (a *schedulerActor) saveDue(ctx actor.Context) bool {
	step := a.state.Step
	if a.spec.WriteCheckpoint == nil || step == 0 && !a.saveNow && !a.leaves() {
		return false
	}
	if a.saved == step {
		return a.saveNow && a.clearSaveNow(ctx)
	}
	switch {
	case a.saveNow, a.leaves(), a.best && a.spec.WriteBest == nil:
		return true
	case a.state.SkippedInARow > 0 && !a.best: // a good loss shows that the weights are good
		return step >= a.spec.Steps && a.diverged() == nil
	}
	return step >= a.spec.Steps || a.savesAt(step) || a.saveMissed || a.impatient()
}

// bestDue reports whether the weights of the validation that has ended are the best so far and have
// to be written. Those of an earlier step do not exist any more.
func (a *schedulerActor) bestDue() bool {
	return a.best && a.spec.WriteBest != nil && a.state.BestStep == a.state.Step
}

// impatient reports whether Spec.Patience validations have passed without a better loss. It follows
// from the state alone, so a resumed run knows it, too.
func (a *schedulerActor) impatient() bool {
	every, step, best := a.spec.EvalEvery, a.state.Step, a.state.BestStep
	return a.spec.Patience > 0 && every > 0 && best > 0 && a.evaled == step && step/every-best/every >= a.spec.Patience
}

// clearSaveNow drops a request for a checkpoint that exists already or is being written.
func (a *schedulerActor) clearSaveNow(ctx actor.Context) bool {
	a.saveNow = false
	if a.saves.written < a.saved {
		a.saves.begin(a.saved)
		return false
	}
	for _, id := range a.saves.wanted {
		a.tell(ctx, id, a.saved, true)
	}
	a.saves.wanted = nil
	return false
}

// send sends every stage its order for what comes next.
func (a *schedulerActor) send(ctx actor.Context, p event.Phase) {
	step := a.state.Step
	if p == event.Train {
		step++
	}
	o := a.newOrder(p, step)
	a.issue(ctx, o)
	a.begin(ctx, o)
}

// newOrder makes the order that all ranks get, without the parts of their replica.
func (a *schedulerActor) newOrder(p event.Phase, step int64) *Order {
	a.orders++
	h := a.runID.header(step, a.orders)
	o := &Order{Header: h, Phase: p, Trace: a.local.recorder.on()}
	if p == event.Train {
		o.Trace = o.Trace || due(a.spec.TraceEvery, step)
		o.Norms = a.spec.WriteStats != nil && due(a.spec.StatsEvery, step)
	}
	return o
}

// due reports whether a step is a multiple of every; 0 selects none.
func due(every, step int64) bool { return every > 0 && step%every == 0 }

func (a *schedulerActor) issue(ctx actor.Context, o *Order) {
	orders := make([]*Order, len(a.replicas))
	for i := range orders {
		orders[i] = a.tables.order(a.spec, i, *o)
	}
	for rank, pid := range a.peers.Stages {
		ctx.Send(pid, orders[a.spec.place(rank)[grid.Data]])
	}
}

// begin makes an issued order the current one.
func (a *schedulerActor) begin(ctx actor.Context, o *Order) {
	a.phase, a.order, a.began, a.spent, a.logs = o.Phase, o.Order, time.Now(), sysinfo.CPUTime(), o.Norms
	a.local.underWay.Store(&underWay{o.Step, o.Order, o.Phase, a.began, o.Trace})
	a.losses.Reset()
	a.done.reset()
	a.awaitShadows(o.Phase)
	a.busy, a.trace, a.clocks = 0, nil, nil
	clear(a.norms)
	clear(a.weights)
	clear(a.routers)
	a.cell.store(a.done.snapshot(o.Step, o.Phase))
	if o.Phase == event.Train && a.spec.PostValidate {
		a.speculate(ctx)
	}
}

func (a *schedulerActor) stageDone(ctx actor.Context, m *StageDone) {
	a.done.mark(m.Rank)
	a.busy += m.Busy
	for _, l := range m.Losses {
		if len(l.Outputs) > 0 {
			ctx.Send(a.peers.Metrics, &publish{OutputEvent{Microbatch: l.Microbatch, Outputs: l.Outputs}})
		}
		if l.Targets == 0 && l.Sum == 0 && len(l.Outputs) > 0 {
			continue // not from the last stage
		}
		if err := a.losses.Add(l.Microbatch, l.Report); err != nil {
			a.fail(ctx, m.Step, err)
			return
		}
	}
	a.norms = a.spec.inSlot(a.norms, m.Norms, m.Rank)
	a.weights = a.spec.inSlot(a.weights, m.Weights, m.Rank)
	if len(m.Routers) > 0 {
		if a.routers == nil {
			a.routers = make([][]stages.RouterStats, a.spec.ranks())
		}
		a.routers[m.Rank] = m.Routers
	}
	if m.Trace != nil {
		if a.trace == nil {
			a.trace = make([][]event.ActionTime, a.spec.ranks())
		}
		a.trace[m.Rank] = m.Trace
		a.setTime(m)
		a.local.ObserveActions(RankActions{Rank: m.Rank, Step: m.Step, Order: m.Order, Phase: a.phase, Times: m.Trace})
	}
	if a.done.all() {
		a.reported = time.Now()
	}
	a.reports(ctx, m.Step)
}

// awaitShadows begins the wait for the shadows in an order.
func (a *schedulerActor) awaitShadows(p event.Phase) {
	a.shadowed.reset()
	for rank := range a.spec.ranks() {
		if p != event.Train || a.spec.ShadowAt(rank) < 0 {
			a.shadowed.mark(rank)
		}
	}
}

// reports ends the order in progress when all reports have come, and the shadows have the gradients.
func (a *schedulerActor) reports(ctx actor.Context, step int64) {
	switch {
	case !a.done.all():
		a.cell.store(a.done.snapshot(step, a.phase))
		return
	case !a.shadowed.all():
		s := a.shadowed.snapshot(step, a.phase)
		s.Wait, s.From = event.WaitShadow, a.spec.stageName(a.spec.ShadowAt(a.shadowed.first))
		a.cell.store(s)
		return
	}
	phase := a.phase
	a.phase = 0
	if phase == event.Eval {
		a.evalDone(ctx)
	} else {
		a.decide(ctx)
	}
	a.proceed(ctx)
}

// inSlot stores squared norms of a rank.
func (s *Spec) inSlot(all []float64, norms []stages.Norm, rank int) []float64 {
	slots := s.slots()
	for _, n := range norms {
		for len(all) < (n.Param+1)*slots {
			all = append(all, 0)
		}
		all[n.Param*slots+s.normSlot(rank, n.Param)] = n.Squared
	}
	return all
}

// setTime converts the times of a trace from another process to this process's clock, with the
// currently known offset.
func (a *schedulerActor) setTime(m *StageDone) {
	if a.spec.Clock == nil || a.spec.host(m.Rank) == "" {
		return
	}
	c := a.spec.Clock(m.Rank)
	for i := range m.Trace {
		m.Trace[i].Move(-c.Ahead)
	}
	if a.clocks == nil {
		a.clocks = make([]event.Clock, a.spec.ranks())
	}
	a.clocks[m.Rank] = c
}

// evalDone handles the validation's loss.
func (a *schedulerActor) evalDone(ctx actor.Context) {
	a.evaled = a.state.Step
	a.copyEval()
	loss, losses := a.evalLosses()
	if a.last == nil {
		a.last = &event.StepEvent{Record: telemetry.Record{Step: int(a.state.Step), Epoch: a.spec.epochs(a.state.Step),
			TimeMS: clock.Now().UnixMilli()}}
	}
	a.last.ValLoss, a.last.ValMetrics, a.last.ValLosses = &loss, metricsOf(a.decidingLosses()), losses
	a.warnDiverging(ctx, loss)
	if !finite(loss) {
		return // it is never the best, and trainer.json cannot hold it
	}
	if a.state.Step == 0 {
		a.state.FirstValLoss = &loss
		return
	}
	if a.state.BestValLoss == nil || loss < *a.state.BestValLoss {
		a.state.BestValLoss, a.state.BestStep, a.best = &loss, a.state.Step, !a.spec.NoBest
	}
}

// writeRecord hands the finished step to the metrics actor.
func (a *schedulerActor) writeRecord(ctx actor.Context) {
	a.last.IdealBubblePct = a.idealBubble
	ctx.Request(a.peers.Metrics, &writeStep{Header: a.header(), event: *a.last, norms: a.logged})
	a.last, a.logged = nil, nil
	a.recording++
}

// save starts a checkpoint or, with weights, the weights alone of the best validation. The stages
// copy their state before their next order; it is written while training continues.
func (a *schedulerActor) save(ctx actor.Context, weights bool) {
	h := a.header()
	ctx.Send(a.peers.Checkpoint, &BeginSave{Header: h, State: a.state, Best: a.best && a.state.BestStep == a.state.Step, Weights: weights})
	for rank, pid := range a.peers.Stages {
		// Weights alone are converted where they are written.
		ctx.Send(pid, &SaveState{Header: h, Keep: !weights && a.spec.shares(rank), Weights: weights})
	}
	if !weights {
		a.saves.begin(a.state.Step)
		a.saved, a.saveNow, a.saveMissed = a.state.Step, false, false
	}
	a.best, a.savingNow = false, true
	a.saving++
	a.waitDisk(checkpointName)
}

// written handles the end of a write.
func (a *schedulerActor) written(ctx actor.Context, m *Saved) {
	a.saving--
	ctx.Send(a.peers.Metrics, &publish{event.CheckpointEvent{Step: m.Step, Dir: m.Dir, Best: m.Best, Weights: m.Weights, Took: m.Took}})
	if m.Weights {
		return
	}
	a.again = saveAgain{}
	for _, id := range a.saves.end(m.Step) {
		a.tell(ctx, id, m.Step, true)
	}
}
