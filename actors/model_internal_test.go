package actors

// A model of what the processes of a run do when one is lost, small enough to be searched whole. It has the scheduler and the supervisor,
// which are not lost, and three ranks, each in a process of its own. Every order in which messages arrive, lists end, processes die and
// deaths are noticed is a path from its first state. What a stage or a shadow does with what it has kept is decided by the code itself
// (stageEnd.to, shadowEnd.to), and a stage halts by its table (stageMoves).
//
// What is not in it: the tensors of a step between stages, since a step that is not decided leaves nothing; messages of an attempt that
// has ended, which runID.accepts drops; and what a worker does before and after its stages (package cluster). Messages to the scheduler
// and the supervisor arrive when they are sent: they only count, so it makes no difference.

const modelRanks = 3

// modelRules are the rules of a run, and of mistakes that the search has to find.
type modelRules struct {
	copies bool  // each rank has the state of all others; otherwise each has a shadow with the next rank
	ahead  bool  // post-validation
	steps  uint8 // of the run
	skip   uint8 // the step whose update is skipped; 0: none
	missed uint8 // the step whose update is not as predicted; 0: none
	deaths uint8 // at most

	mistake string
}

// target is the scheduler's decision of a step.
func (m *modelRules) target(step uint8) Target {
	return Target{Step: int64(step), Skip: step > 0 && step == m.skip,
		Kept: m.ahead && step > 0 && step != m.skip && step != m.missed}
}

// updates is how many updates the weights have after a step.
func (m *modelRules) updates(step uint8) uint8 {
	if m.skip > 0 && step >= m.skip {
		return step - 1
	}
	return step
}

func holderOf(rank int) int { return (rank + 1) % modelRanks }
func heldBy(rank int) int   { return (rank + modelRanks - 1) % modelRanks }

// modelPhase is what the coordinator does.
type modelPhase uint8

const (
	modelRuns     modelPhase = iota
	modelHalts               // the attempt ends: stages halt
	modelLeaves              // all have halted, and stop
	modelOver                // the attempt has ended
	modelAssigns             // the next one's workers get their ranks
	modelFinished            // the run has ended
	modelRestarts            // from a checkpoint, for the reason why
)

// The messages to a stage: a kind, a flag and a step.
const (
	sendPeers = iota + 1
	sendOrder // flag: ahead
	sendApply // flag: it aborts the order that came ahead
	sendHalt
	sendLeave // flag: keep
)

type modelMessage struct {
	kind uint8
	flag bool
	step uint8
}

// modelQueue is a mailbox.
type modelQueue struct {
	n   uint8
	all [8]modelMessage
}

func (q *modelQueue) push(m modelMessage) { q.all[q.n], q.n = m, q.n+1 }

func (q *modelQueue) pop() modelMessage {
	m := q.all[0]
	copy(q.all[:], q.all[1:])
	q.n--
	q.all[q.n] = modelMessage{}
	return m
}

// modelStage is a rank with its process. good and speculative are what its weights really have, whatever the stage believes.
type modelStage struct {
	alive, fresh  bool // fresh: it has to get its state from another process
	state         stageState
	failed        bool
	told, stopped bool
	mail          modelQueue

	good        uint8 // updates in its weights
	speculative uint8 // 1: one more, as it will be decided; 2: one that will not be
	gradient    uint8 // step whose gradients it has whole; 0: none

	built         bool
	settled       uint8
	update        updateState
	decision      modelMessage // kind 0: none
	order         modelMessage
	todo          [2]modelMessage
	acted, ready  bool
	was           uint8 // step that it had applied when its last attempt ended
	list          uint8 // what its device computes
	keep          bool
	kept, keeping bool // kept: the process has it for the next attempt; keeping: it will
	lane          [2]uint8
	shadow        modelShadow
}

const (
	listActions = iota + 1
	listNorms
	listUpdate
	listSpeculative
)

// modelShadow is the shadow of the rank before.
type modelShadow struct {
	ready   bool
	settled uint8
	good    uint8    // updates in it
	steps   [2]uint8 // whose gradients it has
	folds   uint8    // step that it folds; 0: none
}

// modelState is a state of the whole.
type modelState struct {
	phase   modelPhase
	why     uint8
	deaths  uint8
	base    uint8 // step from which the attempt has started
	decided uint8
	order   uint8 // step of the order in progress; 0: none
	ahead   uint8 // step of the order that was sent ahead
	noticed uint8 // ranks whose loss this attempt knows
	done    uint8
	covered uint8 // ranks whose gradients their shadows have
	applied uint8
	ready   uint8
	rests   uint8
	left    uint8
	answers uint8
	keeps   bool
	stages  [modelRanks]modelStage
}

// The reasons of a restart.
const (
	whyHolders = iota + 1 // a rank and its holder are lost
	whyNotKept            // a process has nothing to adopt
	whyShadow             // the shadow is not complete
)

var modelWhys = []string{"", "no other process has the state", "nothing was kept", "the shadow is not complete"}

const allRanks = 1<<modelRanks - 1

func bit(rank int) uint8 { return 1 << rank }

// modelRun is a search.
type modelRun struct {
	*modelRules
	wrong func(s *modelState, format string, args ...any)
}

// first is the state in which every stage waits for the first order.
func (m *modelRun) first() (s modelState) {
	s.ready, s.applied = allRanks, allRanks
	for i := range s.stages {
		r := &s.stages[i]
		r.alive, r.built, r.ready, r.state = true, true, true, stageResting
		r.shadow.ready = !m.copies
	}
	m.proceed(&s)
	return s
}

// next calls emit for each state that can follow.
func (m *modelRun) next(s *modelState, emit func(modelState)) {
	if s.phase >= modelFinished {
		return
	}
	do := func(f func(t *modelState)) {
		t := *s
		if f(&t); t != *s {
			emit(t)
		}
	}
	for i := range s.stages {
		if r := &s.stages[i]; r.alive {
			m.stageMoves(s, i, do)
			if s.deaths < m.deaths {
				do(func(t *modelState) { m.die(t, i, false) })
				if r.lane[0] != 0 { // what it has sent may still arrive
					do(func(t *modelState) { m.die(t, i, true) })
				}
			}
		} else if s.noticed&bit(i) == 0 {
			do(func(t *modelState) { m.notice(t, i) })
		}
		if h := &s.stages[holderOf(i)]; s.stages[i].lane[0] != 0 && h.alive && h.built {
			do(func(t *modelState) { m.gradientArrives(t, i) })
		}
	}
	if s.phase == modelOver {
		do(m.renew)
	}
}

func (m *modelRun) die(s *modelState, i int, arrives bool) {
	lane := s.stages[i].lane
	s.deaths++
	if s.stages[i] = (modelStage{}); arrives {
		s.stages[i].lane = lane
	}
	s.stages[heldBy(i)].lane = [2]uint8{}
}

// stageMoves are the moves of a process that is alive.
func (m *modelRun) stageMoves(s *modelState, i int, do func(func(t *modelState))) {
	r := &s.stages[i]
	if r.stopped && r.keeping {
		do(func(t *modelState) { t.stages[i].keeping, t.stages[i].kept = false, true })
	}
	if s.phase == modelAssigns && s.answers&bit(i) == 0 {
		do(func(t *modelState) { m.answer(t, i) })
	}
	if r.stopped {
		return
	}
	if r.mail.n > 0 {
		do(func(t *modelState) { m.receive(t, i) })
	}
	switch {
	case r.state == stageBuilding || r.state == stageHalting && !r.built:
		m.builds(s, i, do)
	case r.list != 0:
		do(func(t *modelState) { m.completed(t, i) })
	case r.state == stageResting && !r.failed:
		if t := *s; m.advance(&t, i) {
			do(func(t *modelState) { m.advance(t, i) })
		}
	}
	if h := &r.shadow; h.folds != 0 {
		do(func(t *modelState) { m.folded(t, i) })
	}
	of := &s.stages[heldBy(i)]
	if !m.copies && r.built && !r.failed && !r.shadow.ready && of.alive && of.built && !of.failed && of.state == stageResting {
		do(func(t *modelState) { // it gets the state of the rank
			of := t.stages[heldBy(i)]
			t.stages[i].shadow = modelShadow{ready: true, settled: t.base, good: of.good}
			m.tellReady(t, i)
		})
	}
}

// receive takes the first message.
func (m *modelRun) receive(s *modelState, i int) {
	r := &s.stages[i]
	switch got := r.mail.pop(); got.kind {
	case sendPeers:
		r.settled, r.state = s.base, r.state.on(peersKnown)
	case sendOrder:
		if !r.failed {
			r.todo[r.waiting()] = got
		}
	case sendApply:
		if r.decision.kind != 0 && !r.failed {
			m.wrong(s, "rank %d has two decisions waiting", i)
		}
		if r.decision = got; !r.failed && !m.copies {
			if r.shadow.steps[0] != got.step {
				m.wrong(s, "step %d was decided before the gradients of rank %d had reached its shadow", got.step, heldBy(i))
			}
			r.shadow.folds = got.step
		}
	case sendHalt:
		r.failed, r.state = true, r.state.on(haltAsked)
		m.tellHalted(s, i)
	case sendLeave:
		r.failed, r.keep = true, got.flag
		m.stop(s, i)
	}
}

func (m *modelRun) tellHalted(s *modelState, i int) {
	r := &s.stages[i]
	if r.state != stageHalted || r.told || r.shadow.folds != 0 {
		return
	}
	r.told = true
	m.rest(s, i)
}

// stop ends a stage that has halted: the supervisor sends leave only then.
func (m *modelRun) stop(s *modelState, i int) {
	r := &s.stages[i]
	if !r.told {
		m.wrong(s, "rank %d is to leave and has not halted", i)
	}
	r.stopped, r.keeping = true, r.keep && r.built
	s.left |= bit(i)
	m.ends(s)
}

// builds are the ways in which the building of a stage can end.
func (m *modelRun) builds(s *modelState, i int, do func(func(t *modelState))) {
	r := &s.stages[i]
	if !r.fresh {
		do(func(t *modelState) { m.adopt(t, i) })
		return
	}
	if r.failed { // it stops reading
		do(func(t *modelState) {
			t.stages[i].state = t.stages[i].state.on(atRest)
			m.tellHalted(t, i)
		})
		return
	}
	from := holderOf(i)
	if m.copies && s.stages[from].fresh {
		from = holderOf(from)
	}
	h := &s.stages[from]
	if !h.alive || !h.built || h.failed || h.state != stageResting {
		return // no answer
	}
	do(func(t *modelState) {
		r, h := &t.stages[i], &t.stages[from]
		good := h.good
		if !m.copies {
			if !h.shadow.ready {
				t.restart(whyShadow)
				return
			}
			good = h.shadow.good
		}
		r.good = good
		m.built(t, i)
	})
}

func (m *modelRun) built(s *modelState, i int) {
	r := &s.stages[i]
	r.built, r.settled, r.was, r.update, r.gradient, r.speculative = true, s.base, 0, updateSettled, 0, 0
	r.state = r.state.on(atRest)
	m.tellHalted(s, i)
	m.tellReady(s, i)
}

// adopt is Kept.adopt and shadow.adopt.
func (m *modelRun) adopt(s *modelState, i int) {
	r := &s.stages[i]
	target := m.target(s.base)
	how, err := stageEnd{settled: int64(r.was), update: r.update}.to(target)
	if err != nil {
		m.wrong(s, "rank %d: %v", i, err)
		return
	}
	if m.mistake == "pending steps are dropped" && how == adoptApply {
		how = adoptReset
	}
	m.effect(s, i, how, s.base)
	if h := &r.shadow; h.ready {
		fold, err := shadowEnd{settled: int64(h.settled), next: h.steps[0] != 0}.to(target)
		if err != nil {
			m.wrong(s, "rank %d: %v", i, err)
			return
		}
		if fold {
			if h.steps[0] != s.base {
				m.wrong(s, "the shadow of rank %d folds step %d with gradients of step %d", heldBy(i), s.base, h.steps[0])
			}
			h.good++
		}
		h.settled, h.steps = s.base, [2]uint8{}
	}
	m.built(s, i)
}

// effect is what an adoption, or the decision of a step, does to the weights.
func (m *modelRun) effect(s *modelState, i int, how adoption, step uint8) {
	r := &s.stages[i]
	speculates, applies := how != adoptReset && how != adoptApply, how == adoptApply || how == adoptRollback
	switch {
	case speculates != (r.speculative != 0):
		m.wrong(s, "rank %d ends step %d by %d, with speculative %d", i, step, how, r.speculative)
	case applies && r.gradient != step:
		m.wrong(s, "rank %d applies step %d with gradients of step %d", i, step, r.gradient)
	case how == adoptCommit && r.speculative != 1:
		m.wrong(s, "rank %d confirms an update of step %d that was not predicted", i, step)
	}
	if applies || how == adoptCommit {
		r.good++
	}
	r.speculative, r.gradient = 0, 0
}

// tellReady tells the scheduler that a rank and the shadow there have their state.
func (m *modelRun) tellReady(s *modelState, i int) {
	r := &s.stages[i]
	if r.failed || r.ready || !r.built || !m.copies && !r.shadow.ready {
		return
	}
	if r.good != m.updates(s.base) || r.settled != s.base {
		m.wrong(s, "rank %d starts after step %d with %d updates, of step %d; want %d", i, s.base, r.good, r.settled, m.updates(s.base))
	}
	if h := r.shadow; h.ready && (h.good != m.updates(s.base) || h.settled != s.base) {
		m.wrong(s, "the shadow of rank %d starts after step %d with %d updates, of step %d", heldBy(i), s.base, h.good, h.settled)
	}
	r.ready = true
	if s.ready |= bit(i); s.ready == allRanks {
		m.proceed(s)
	}
}

// advance starts what a stage at rest can start, and reports whether there was something.
func (m *modelRun) advance(s *modelState, i int) bool {
	r := &s.stages[i]
	switch {
	case r.decision.kind != 0:
		m.applyDecision(s, i)
		return true
	case r.order.kind != 0 && !r.acted:
		r.list = listActions
	case r.order.kind != 0 && r.update != updateSpeculative: // what touches gradients waits for the decision
		r.list = listNorms
	case r.order.kind != 0 || r.todo[0].kind == 0:
		return false
	case r.todo[0].flag && r.update == updatePending:
		r.update, r.list = updateSpeculative, listSpeculative
	default:
		r.order, r.todo, r.acted = r.todo[0], [2]modelMessage{r.todo[1]}, false
		return true
	}
	r.state = r.state.on(submitted)
	return true
}

// applyDecision is stageActor.applyDecision.
func (m *modelRun) applyDecision(s *modelState, i int) {
	r := &s.stages[i]
	d := r.decision
	target, was := m.target(d.step), r.update
	r.decision, r.update, r.settled = modelMessage{}, updateSettled, d.step
	if d.flag {
		if r.order.kind != 0 {
			r.order = modelMessage{}
		} else if r.todo[0].flag {
			r.todo = [2]modelMessage{r.todo[1]}
		}
	}
	how := adoptApply
	switch {
	case was == updateSpeculative && target.Kept:
		how = adoptCommit
	case was == updateSpeculative && target.Skip:
		how = adoptUndo
	case was == updateSpeculative:
		how = adoptRollback
	case target.Skip:
		how = adoptReset
	}
	m.effect(s, i, how, d.step)
	r.list, r.state = listUpdate, r.state.on(submitted)
}

// completed ends the list of a device.
func (m *modelRun) completed(s *modelState, i int) {
	r := &s.stages[i]
	list := r.list
	r.list, r.state = 0, r.state.on(atRest)
	if list == listSpeculative { // it has been computed, whatever follows
		if r.speculative = 2; m.target(r.settled + 1).Kept {
			r.speculative = 1
		}
	}
	if r.failed {
		m.tellHalted(s, i)
		return
	}
	switch list {
	case listActions:
		r.acted = true
	case listNorms:
		r.gradient, r.update = r.order.step, updatePending
		if !m.copies {
			lane := &r.lane[0]
			if *lane != 0 {
				lane = &r.lane[1]
			}
			*lane = r.order.step
		}
		r.order = modelMessage{}
		s.done |= bit(i)
		m.reports(s)
	case listUpdate:
		s.applied |= bit(i)
		m.proceed(s)
	}
}

// gradientArrives is stageActor.takeGradient, at the holder.
func (m *modelRun) gradientArrives(s *modelState, of int) {
	i := holderOf(of)
	r, lane := &s.stages[i], &s.stages[of].lane
	step := lane[0]
	*lane = [2]uint8{lane[1], 0}
	h := &r.shadow
	switch {
	case r.failed || step <= h.settled:
		return
	case !h.ready:
		m.wrong(s, "gradients of step %d come to the shadow of rank %d, which has no state", step, of)
	case h.steps[0] == 0:
		h.steps[0] = step
	default:
		h.steps[1] = step
	}
	m.tellShadowed(s, i)
}

func (m *modelRun) tellShadowed(s *modelState, i int) {
	h := &s.stages[i].shadow
	if h.steps[0] == h.settled+1 && h.steps[0] == s.order {
		s.covered |= bit(heldBy(i))
		m.reports(s)
	}
}

func (m *modelRun) folded(s *modelState, i int) {
	r := &s.stages[i]
	h := &r.shadow
	if !m.target(h.folds).Skip {
		h.good++
	}
	h.settled, h.folds, h.steps = h.folds, 0, [2]uint8{h.steps[1], 0}
	if r.failed {
		m.tellHalted(s, i)
		return
	}
	m.tellShadowed(s, i)
}

func (m *modelRun) send(s *modelState, message modelMessage) {
	for i := range s.stages {
		if s.stages[i].alive {
			s.stages[i].mail.push(message)
		}
	}
}

// reports is schedulerActor.reports. The scheduler decides also while the attempt ends, until its stages have halted.
func (m *modelRun) reports(s *modelState) {
	if s.order == 0 || s.done != allRanks || !m.copies && s.covered != allRanks && m.mistake != "decided without shadows" {
		return
	}
	step := s.order
	if step != s.decided+1 {
		m.wrong(s, "step %d is decided after step %d", step, s.decided)
	}
	s.decided, s.order, s.applied = step, 0, 0
	ahead := s.ahead
	s.ahead = 0
	aborts := ahead != 0 && !m.target(step).Kept
	m.send(s, modelMessage{kind: sendApply, flag: aborts, step: step})
	if ahead != 0 && !aborts {
		m.begin(s, ahead)
	}
	m.proceed(s)
}

// begin makes an order the current one.
func (m *modelRun) begin(s *modelState, step uint8) {
	s.order, s.done, s.covered = step, 0, 0
	if m.ahead && step < m.steps {
		s.ahead = step + 1
		m.send(s, modelMessage{kind: sendOrder, flag: true, step: s.ahead})
	}
}

// proceed is schedulerActor.proceed.
func (m *modelRun) proceed(s *modelState) {
	switch {
	case s.order != 0 || s.phase != modelRuns || s.ready != allRanks:
	case s.decided < m.steps:
		m.send(s, modelMessage{kind: sendOrder, step: s.decided + 1})
		m.begin(s, s.decided+1)
	case s.applied == allRanks:
		*s = modelState{phase: modelFinished, deaths: s.deaths, decided: s.decided}
	}
}

// notice is supervisor.Receive of lost, and what the coordinator does when no supervisor is there.
func (m *modelRun) notice(s *modelState, i int) {
	s.noticed |= bit(i)
	switch s.phase {
	case modelRuns:
		s.phase, s.keeps = modelHalts, m.holders(s)
		m.send(s, modelMessage{kind: sendHalt})
	case modelHalts, modelLeaves:
		s.keeps = m.holders(s)
	case modelAssigns: // the attempt begins without it
		m.answered(s, i)
		return
	}
	m.rest(s, i)
	s.left |= bit(i)
	m.ends(s)
}

// waiting is the number of orders that wait.
func (r *modelStage) waiting() (n int) {
	for n < len(r.todo) && r.todo[n].kind != 0 {
		n++
	}
	return n
}

// restart ends the path.
func (s *modelState) restart(why uint8) {
	*s = modelState{phase: modelRestarts, why: why, deaths: s.deaths, decided: s.decided}
}

// holders is plan.Keeps: each rank that is lost has a holder that is not.
func (m *modelRun) holders(s *modelState) bool {
	for i := range s.stages {
		lost := s.noticed&bit(i) != 0
		if lost && (m.copies && s.noticed == allRanks || !m.copies && s.noticed&bit(holderOf(i)) != 0) {
			return false
		}
	}
	return true
}

// rest is supervisor.rest.
func (m *modelRun) rest(s *modelState, i int) {
	s.rests |= bit(i)
	if s.phase == modelHalts && s.rests == allRanks {
		s.phase = modelLeaves
		for j := range s.stages {
			if s.noticed&bit(j) == 0 && s.stages[j].alive {
				s.stages[j].mail.push(modelMessage{kind: sendLeave, flag: s.keeps})
			}
		}
	}
}

// ends ends the attempt when no stage is left.
func (m *modelRun) ends(s *modelState) {
	switch {
	case s.phase != modelLeaves || s.left != allRanks:
	case !s.keeps:
		s.restart(whyHolders)
	default:
		s.phase = modelOver
	}
}

// renew assigns the ranks of the next attempt, those that are lost to free workers.
func (m *modelRun) renew(s *modelState) {
	for i := range s.stages { // those that had to get their state, and have not, lose it
		if r := &s.stages[i]; r.fresh && !r.ready && m.mistake != "loading ranks are thought to be kept" {
			s.noticed |= bit(i)
		}
	}
	if !m.holders(s) {
		s.restart(whyHolders)
		return
	}
	base := s.decided
	if m.mistake == "a decided step is lost" {
		base = s.base
	}
	next := modelState{phase: modelAssigns, deaths: s.deaths, base: base, decided: base, applied: allRanks, stages: s.stages}
	for i := range next.stages {
		r := &next.stages[i]
		r.lane, r.fresh = [2]uint8{}, false
		if s.noticed&bit(i) != 0 {
			*r = modelStage{alive: true, fresh: true}
		}
	}
	*s = next
}

// answer is what a process answers to the assignment of its rank.
func (m *modelRun) answer(s *modelState, i int) {
	r := &s.stages[i]
	switch {
	case r.keeping && m.mistake != "an assignment does not wait": // for the part that ends
		return
	case !r.fresh && !r.kept:
		s.restart(whyNotKept)
		return
	}
	m.answered(s, i)
}

// answered begins the attempt when all have answered that live. If some do not, it ends at once.
func (m *modelRun) answered(s *modelState, i int) {
	if s.answers |= bit(i); s.answers != allRanks {
		return
	}
	s.phase = modelRuns
	for i := range s.stages {
		r := &s.stages[i]
		if !r.alive {
			continue
		}
		was := *r
		var h modelShadow
		if was.shadow.ready {
			h = modelShadow{ready: true, settled: was.shadow.settled, good: was.shadow.good, steps: keptSteps(was.shadow)}
		}
		*r = modelStage{alive: true, fresh: was.fresh, good: was.good, speculative: was.speculative, gradient: was.gradient,
			update: was.update, was: was.settled, shadow: h}
		r.mail.push(modelMessage{kind: sendPeers, step: s.base})
	}
	if s.noticed == 0 {
		return
	}
	s.phase, s.keeps = modelHalts, m.holders(s)
	m.send(s, modelMessage{kind: sendHalt})
	s.rests, s.left = s.noticed, s.noticed
	if s.noticed == allRanks {
		s.restart(whyHolders)
	}
}

// keptSteps is shadow.keep: of the gradients, those of the step after its own.
func keptSteps(h modelShadow) [2]uint8 {
	if h.steps[0] == h.settled+1 {
		return [2]uint8{h.steps[0], 0}
	}
	return [2]uint8{}
}
