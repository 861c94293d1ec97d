package actors

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Resetter is a Compute that can outlive its attempt. Reset records that the step in progress ends as if it had never
// begun.
type Resetter interface {
	Reset(l *tensorops.List)
}

// Target is the step from which the next attempt continues: the last one that the scheduler has decided, with its decision.
type Target struct {
	Step       int64
	Skip, Kept bool // as in Apply
	Update     stages.Update
}

// Kept is a rank's stage that has outlived its attempt, with its stream, weights and optimizer state. It belongs to one owner at a
// time: the next attempt, if that gets it in Spec.Adopt, or the caller, which has to close it.
type Kept struct {
	Rank int

	blank   bool // it has no state yet; see Prepare
	stage   Compute
	stream  tensorops.Stream
	end     stageEnd
	shadows []*shadow        // of other ranks, which its actor has held
	spare   *tensorops.Spare // memory for transfers of the next attempt; nil: another one of the process has it
	taken   atomic.Bool
}

// stageEnd is the state in which a stage has ended.
type stageEnd struct {
	settled int64       // the last step that ended with the scheduler's decision
	update  updateState // of the step after it
	keep    bool        // the supervisor said so
	broken  error       // a list that changes weights has failed; nil: none has
}

// adoption is what brings a kept stage to a target.
type adoption uint8

const (
	adoptReset    adoption = iota // drop what was begun
	adoptApply                    // apply the target's update, which has not arrived
	adoptCommit                   // confirm a speculative update
	adoptRollback                 // undo a speculative update, and apply the target's
	adoptUndo                     // undo a speculative update
)

// errTarget: a kept stage can't continue from a target.
var errTarget = errors.New("the stage cannot continue from the last decided step")

// ErrRenewal: an attempt that was to continue another one has failed before every stage had its state. Its stages have ended; the run can
// restart from a checkpoint.
var ErrRenewal = errors.New("the ranks of a failed worker could not be replaced")

// to returns what brings a stage that has ended in this state to a target. Every rank had reported a step before it was decided, so
// a stage is either at the target, or one step before it with the gradients of the target's step.
func (e stageEnd) to(t Target) (adoption, error) {
	speculative := e.update == updateSpeculative
	switch ahead := t.Step - e.settled; {
	case e.broken != nil:
		return 0, fmt.Errorf("%w: its weights are undefined after a failure: %w", errTarget, e.broken)
	case ahead == 0 && speculative:
		return adoptUndo, nil
	case ahead == 0:
		return adoptReset, nil
	case ahead != 1 || e.update == updateSettled:
		return 0, fmt.Errorf("%w: it has applied step %d, and step %d was decided", errTarget, e.settled, t.Step)
	case speculative && t.Kept:
		return adoptCommit, nil
	case speculative && t.Skip:
		return adoptUndo, nil
	case speculative:
		return adoptRollback, nil
	case t.Skip:
		return adoptReset, nil
	}
	return adoptApply, nil
}

// adopt brings the stage to a target.
func (k *Kept) adopt(t Target) error {
	how, err := k.end.to(t)
	if err != nil {
		return fmt.Errorf("rank %d: %w", k.Rank, err)
	}
	l := k.stream.NewList()
	switch how {
	case adoptApply:
		k.stage.Apply(l, t.Update)
	case adoptCommit:
		k.stage.Commit(l)
	case adoptRollback:
		k.stage.Rollback(l, &t.Update)
	case adoptUndo:
		k.stage.Rollback(l, nil)
	}
	k.stage.(Resetter).Reset(l)
	if err = tensorops.Run(k.stream, l); err != nil {
		k.end.broken = err
		return fmt.Errorf("rank %d: adopt the stage of the last attempt: %w", k.Rank, err)
	}
	k.end = stageEnd{settled: t.Step}
	return nil
}

// Shadows returns the other ranks of which the stage's actor has kept the shadow.
func (k *Kept) Shadows() (ranks []int) {
	for _, s := range k.shadows {
		ranks = append(ranks, s.rank)
	}
	return ranks
}

// take makes an attempt the owner.
func (k *Kept) take() (stage Compute, stream tensorops.Stream) {
	k.taken.Store(true)
	return k.stage, k.stream
}

// Close frees the stage, unless an attempt has taken it.
func (k *Kept) Close() error {
	if k.taken.Swap(true) {
		return nil
	}
	k.closeShadows()
	k.spare.Drop()
	k.stream.Close()
	var err error
	if k.stage != nil {
		err = k.stage.Close()
	}
	k.stream.Arena().Close()
	return err
}

// closeShadows frees the shadows that no attempt has taken.
func (k *Kept) closeShadows() {
	for _, s := range k.shadows {
		_ = s.close() // it has no layers that could fail
	}
	k.shadows = nil
}

// shadowOf takes the shadow of a rank; nil: it is not here.
func (k *Kept) shadowOf(rank int) *shadow {
	for i, s := range k.shadows {
		if s.rank == rank {
			k.shadows = slices.Delete(k.shadows, i, i+1)
			s.stays = false
			return s
		}
	}
	return nil
}

// kept returns the stage of the last attempt that a rank adopts; nil: the rank's stage is built.
func (s *Spec) kept(rank int) *Kept {
	for _, k := range s.Adopt {
		if k.Rank == rank {
			return k
		}
	}
	return nil
}

// buildStage builds the stage of a rank, or adopts the one of the last attempt. A rescued rank gets what can save its state.
func (l *local) buildStage(rank int, stream tensorops.Stream) (Compute, error) {
	s := &l.spec
	if of := l.rescued[rank]; of != nil {
		return of.stage.Stage(), of.adopt(s.Target)
	}
	k := s.kept(rank)
	if k == nil {
		if c := l.equalTo(rank); c != nil {
			return c, nil
		}
		return s.Build(rank, stream)
	}
	if s.Rejoin != nil {
		if err := s.Rejoin(rank, k.stage); err != nil {
			return k.stage, err
		}
	}
	if k.blank {
		return k.stage, s.Load(rank, k.stage)
	}
	return k.stage, k.adopt(s.Target)
}

// keep takes the stages that outlive the attempt out of it: those in this process whose supervisor has said so, or all. The actors
// have ended. The microbatches in flight are dropped, because they use memory of the attempt.
func (l *local) keep(all bool) {
	for rank, stage := range l.computes {
		end := l.ends[rank]
		if _, ok := stage.(Resetter); !ok || end == nil || !all && !end.keep || l.rescued[rank] != nil {
			continue
		}
		k := &Kept{Rank: rank, stage: stage, stream: l.streams[rank], end: *end}
		list := k.stream.NewList()
		stage.AbortMicrobatches(list)
		if err := tensorops.Run(k.stream, list); err != nil {
			l.log.Error("drop the microbatches of a stage", "rank", rank, "err", err)
			continue
		}
		k.shadows = append(l.keepShadows(rank), l.keepRescued(rank)...)
		l.kept = append(l.kept, k)
	}
}

// keepShadows takes the shadows that a rank's actor has held out of the attempt.
func (l *local) keepShadows(holder int) (all []*shadow) {
	for _, s := range l.shadows {
		if s == nil || l.spec.ShadowAt(s.rank) != holder {
			continue
		}
		switch ok, err := s.keep(); {
		case err != nil:
			l.log.Error("keep a shadow", "rank", s.rank, "err", err)
		case ok:
			all = append(all, s)
		}
	}
	return all
}
