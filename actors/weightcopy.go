package actors

import (
	"errors"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/tensorops"
)

// WeightCopier is a Compute whose weights can be copied while it trains.
type WeightCopier interface {
	// CopyWeights records copies of what the rank has of every weight that it answers for. to gives the
	// memory for a whole parameter, by its Index; it stays there until the list has completed and then
	// place, if it is not nil, has returned. That may be called from another goroutine.
	CopyWeights(l *tensorops.List, to func(param int) []float32) (place func() error)
}

// Errors of CopyWeights.
var (
	// ErrEnded: the run has ended, or failed, before every stage had copied its weights.
	ErrEnded = errors.New("the run has ended")
	// ErrApart: some ranks are in other processes, or have weights that can't be copied.
	ErrApart = errors.New("the weights of some ranks can't be copied here")
)

// weightCopy is a copy of all weights, under way. It belongs to all stages of an attempt at
// once, which are in one process.
type weightCopy struct {
	Header // with the step whose end it shows
	to     func(param int) []float32
	done   chan struct{} // closed when all stages have copied

	mu     sync.Mutex
	left   int            // stages
	places []func() error // to call when all have copied
	err    error
}

// copied counts a stage.
func (c *weightCopy) copied(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

// takeWeights asks the scheduler for a copy, which it passes on to the stages.
type takeWeights struct{ *weightCopy }

func (takeWeights) IgnoreDeadLetterLogging() {}

// CopyWeights copies the weight of every parameter as it is at the end of one step, the same on
// all stages, and returns that step's number. to gives the memory for a parameter, by its Index.
// The stages copy between two of their actions, and training goes on meanwhile; no figure of it
// changes. It returns when all have copied, or the run has ended: nothing touches the memory any
// more then.
func (r *Run) CopyWeights(to func(param int) []float32) (step int64, err error) {
	if r.apart {
		return 0, fmt.Errorf("%w: they are in other processes", ErrApart)
	}
	if s := r.shown.Load(); s == nil {
		return 0, ErrEnded
	}
	c := &weightCopy{to: to, done: make(chan struct{}), left: len(r.streams)}
	r.system.Root.Send(r.supervisor, takeWeights{c})
	select {
	case <-c.done:
	case <-r.done: // no list of the run is under way
		select {
		case <-c.done:
		default:
			return 0, ErrEnded
		}
	}
	for _, place := range c.places {
		c.err = errors.Join(c.err, place())
	}
	return c.Step, c.err
}

// takeWeights begins a copy at once where no stage can have begun the next update: what its order
// computes changes no weight, and the scheduler's messages reach a stage in their order. With
// post-validation a stage may be ahead by an update; the copy waits for the end of the step.
func (a *schedulerActor) takeWeights(ctx actor.Context, c *weightCopy) {
	a.copies = append(a.copies, c)
	if !a.spec.PostValidate || a.phase != Train {
		a.copyWeights(ctx)
	}
}

// copyWeights passes on the copies that wait.
func (a *schedulerActor) copyWeights(ctx actor.Context) {
	if !a.ready.all() {
		return
	}
	for _, c := range a.copies {
		c.Header = a.runID.header(a.state.Step, 0)
		for _, pid := range a.peers.Stages {
			ctx.Send(pid, c)
		}
	}
	a.copies = a.copies[:0]
}

// copyWeights copies this rank's weights, for the first that asks. It comes behind the update
// of its step and before anything of the next one that could change a weight.
func (a *stageActor) copyWeights() {
	c := a.copies[0]
	a.copies = append(a.copies[:0], a.copies[1:]...)
	stage, ok := a.stage.(WeightCopier)
	if !ok {
		c.copied(fmt.Errorf("%w: %s computes with its program's own %T", ErrApart, a.spec.stageName(a.rank), a.stage))
		return
	}
	was := a.cell.Load()
	now := was
	now.Doing, now.Wait = Copying, WaitNothing
	a.cell.store(now)
	l := a.stream.NewList()
	if place := stage.CopyWeights(l, c.to); place != nil {
		c.mu.Lock()
		c.places = append(c.places, place)
		c.mu.Unlock()
	}
	a.submit(l, func(actor.Context) {
		a.cell.store(was)
		c.copied(nil)
	})
}
