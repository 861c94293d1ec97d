package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// A rank that no other rank is equal to has its trained weights and optimizer state a second time, in another process: its shadow. The
// actor of a rank there, the shadow's holder, keeps it. The rank sends it the finished gradients of each step, and the scheduler decides
// the step only when they have arrived. So the holder can make the same update, and whatever step is decided, the state after it is in
// two processes. If one is lost, the next attempt has it from the other.

// shadow is what a holder has of another rank. It computes one list at a time, on a stream of its own.
type shadow struct {
	rank   int // the rank
	stream tensorops.Stream
	stage  *stages.Shadow // nil: not built

	ready   bool  // it has the state after step settled
	settled int64 // the last step that ended with the scheduler's decision
	broken  error // a list that changes the state has failed
	steps   []*shadowStep
	jobs    []shadowJob // at most one for each step, each tensor of seeding, and each request
	busy    bool        // the first of jobs is being computed

	// Without a state, it asks the rank for these, several at a time.
	parts      []stages.StatePart
	asked, put int

	stays  bool // it outlives the attempt
	holder int  // in a rescue, of a lost rank's: the rank whose actor has held it before
}

// shadowStep holds the gradients of a step, by their place in the shadow.
type shadowStep struct {
	step, order int64
	grads       []tensorops.Tensor
	came        int
}

func (s *shadowStep) whole() bool { return s.came == len(s.grads) }

func (s *shadowStep) release() {
	for i, g := range s.grads {
		g.Release()
		s.grads[i] = tensorops.Tensor{}
	}
}

// shadowJob is a list for the shadow's stream.
type shadowJob struct {
	fold   bool // it ends a decided step, also while the run ends
	record func(l *tensorops.List)
	then   func(ctx actor.Context)
	change bool // it changes the state
}

// shadowDone says that a shadow's list has completed.
type shadowDone struct {
	of  *shadow
	err error
}

func (*shadowDone) IgnoreDeadLetterLogging() {}

// ShadowAt returns the rank that holds the shadow of a rank; −1: it has none.
func (s *Spec) ShadowAt(rank int) int {
	if rank < 0 || rank >= len(s.Shadows) {
		return -1
	}
	return s.Shadows[rank]
}

// shadowHere reports whether the process at an address, "" for this one, holds the shadow of a rank. What must stay on the edge has none
// elsewhere.
func (s *Spec) shadowHere(address string, rank int) bool {
	h := s.ShadowAt(rank)
	return h >= 0 && s.host(h) == address && (!s.Edge || s.stageOf(rank) != 0 || s.stageOf(h) == 0)
}

// checkShadows checks where the shadows are.
func (s *Spec) checkShadows() error {
	if len(s.Shadows) == 0 {
		return nil
	}
	if len(s.Shadows) != s.ranks() {
		return fmt.Errorf("%w: there are %d places of shadows for %d ranks", ErrSpec, len(s.Shadows), s.ranks())
	}
	for rank, h := range s.Shadows {
		switch {
		case h < -1 || h >= s.ranks() || h == rank:
			return fmt.Errorf("%w: the shadow of rank %d is with rank %d of %d", ErrSpec, rank, h, s.ranks())
		case h < 0:
		case s.apart() && s.host(h) == s.host(rank):
			return fmt.Errorf("%w: the shadow of rank %d is in the same process, with rank %d", ErrSpec, rank, h)
		case s.Edge && s.stageOf(rank) == 0 && s.stageOf(h) != 0:
			return fmt.Errorf("%w: the shadow of rank %d, with weights of stage 0, is with rank %d: %w", ErrSpec, rank, h, ErrEdge)
		}
	}
	return nil
}

// openShadows makes the shadows whose holders are in this process, or takes them from the last attempt.
func (l *local) openShadows() {
	l.shadows = make([]*shadow, l.spec.ranks())
	for rank := range l.spec.ranks() {
		h := l.spec.ShadowAt(rank)
		if h < 0 || l.spec.host(h) != "" {
			continue
		}
		if k := l.spec.kept(h); k != nil {
			l.shadows[rank] = k.shadowOf(rank)
		}
		if l.shadows[rank] == nil {
			l.shadows[rank] = l.spec.newShadow(rank)
		}
	}
	l.retired = make([][]*shadow, l.spec.ranks())
	for _, k := range l.spec.Adopt { // those that are elsewhere from now on
		for _, s := range k.shadows {
			s.stays = false
		}
		l.retired[k.Rank], k.shadows = k.shadows, nil
	}
}

// newShadow makes the shadow of a rank on the device of its holder.
func (s *Spec) newShadow(rank int) *shadow {
	return &shadow{rank: rank, stream: s.device(s.ShadowAt(rank)).NewStream("shadow of " + s.stageName(rank))}
}

// prepared reports whether the shadow is built and has no state; see Prepare.
func (s *shadow) prepared() bool { return s.stage != nil && !s.ready }

// build allocates the shadow, or brings that of the last attempt to the target.
func (s *shadow) build(spec *Spec) (err error) {
	if s.stage != nil {
		return s.adopt(spec.Target)
	}
	if spec.BuildShadow == nil {
		return fmt.Errorf("%w: there is no BuildShadow", ErrSpec)
	}
	s.stage, err = spec.BuildShadow(s.rank, s.stream)
	return err
}

// shadowEnd is the state in which a shadow has ended.
type shadowEnd struct {
	settled int64 // the last step that ended with the scheduler's decision
	next    bool  // it has the gradients of the step after it
	broken  error // a list that changes the state has failed; nil: none has
}

// to returns whether a shadow that has ended in this state makes the update of a target to get there. A step is decided when the shadows
// have its gradients, so a shadow is either at the target, or one step before it with the gradients of the target's step.
func (e shadowEnd) to(t Target) (fold bool, err error) {
	switch ahead := t.Step - e.settled; {
	case e.broken != nil:
		return false, fmt.Errorf("%w: its state is undefined after a failure: %w", errTarget, e.broken)
	case ahead < 0 || ahead > 1 || ahead == 1 && !e.next && !t.Skip:
		return false, fmt.Errorf("%w: it has the state after step %d, and step %d was decided", errTarget, e.settled, t.Step)
	default:
		return ahead == 1 && !t.Skip, nil
	}
}

// adopt brings a kept shadow to a target.
func (s *shadow) adopt(t Target) error {
	var next *shadowStep
	if len(s.steps) > 0 {
		next = s.steps[0]
	}
	fold, err := shadowEnd{settled: s.settled, next: next != nil, broken: s.broken}.to(t)
	if err != nil {
		return fmt.Errorf("the shadow of rank %d: %w", s.rank, err)
	}
	l := s.stream.NewList()
	if fold {
		s.stage.Fold(l, t.Update, next.grads)
	}
	if next != nil {
		for _, g := range next.grads {
			l.Free(g)
		}
	}
	if err := tensorops.Run(s.stream, l); err != nil {
		s.broken = err
		return fmt.Errorf("the shadow of rank %d: %w", s.rank, err)
	}
	s.settled, s.steps = t.Step, nil
	return nil
}

// keep readies the shadow for the next attempt, and reports whether it is of use there. Gradients of the step after its own are copied:
// they are in memory of the attempt, and the step may have been decided.
func (s *shadow) keep() (bool, error) {
	if !s.ready || s.busy || s.broken != nil {
		return false, nil
	}
	var next *shadowStep
	for _, step := range s.steps {
		if step.step == s.settled+1 && step.whole() {
			next = step
		}
	}
	s.steps, s.jobs = nil, nil
	if next == nil {
		s.stays = true
		return true, nil
	}
	l := s.stream.NewList()
	for i, g := range next.grads {
		own := l.Alloc(g.DType(), g.Shape()...)
		l.Copy(own, g)
		next.grads[i] = own
	}
	if err := tensorops.Run(s.stream, l); err != nil {
		return false, err
	}
	s.steps, s.stays = []*shadowStep{next}, true
	return true, nil
}

// close frees the shadow. No list of it is under way.
func (s *shadow) close() error {
	s.stream.Close()
	var err error
	if s.stage != nil {
		err = s.stage.Close()
	}
	s.stream.Arena().Close()
	return err
}
