package actors

import (
	"errors"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// WeightCopier is a Compute whose weights can be copied while it trains.
type WeightCopier interface {
	// CopyWeights records copies of the rank's part of every weight that it reports. to returns the
	// memory for a whole parameter, by its Index. The memory must exist until the list has
	// completed and place, unless it is nil, has returned. place may be called from another
	// goroutine.
	CopyWeights(l *tensorops.List, to func(param int) []float32) (place func() error)
}

// The errors of CopyWeights.
var (
	// ErrEnded: the run ended, or failed, before every stage had copied its weights.
	ErrEnded = errors.New("the run has ended")
	// ErrApart: some ranks are in other processes, or have weights that can't be copied.
	ErrApart = errors.New("the weights of some ranks cannot be copied in this process")
)

// weightCopy is a copy of all weights in progress. It belongs to all stages of an attempt, which
// are in one process.
type weightCopy struct {
	Header // with the step after which it is taken
	to     func(param int) []float32
	done   chan struct{} // closed after all stages have copied
	// then, for a copy of a validation's weights, is called after all have copied; the scheduler is
	// notified, too.
	then func(place func() error)

	mu     sync.Mutex
	left   int            // stages that have not copied
	places []func() error // to call after all have copied
	err    error
}

// copied counts a stage, and reports whether it was the last.
func (c *weightCopy) copied(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = errors.Join(c.err, err)
	if c.left--; c.left > 0 {
		return false
	}
	close(c.done)
	if c.then != nil {
		c.then(c.finish)
	}
	return true
}

// finish does the remaining copying, after all stages have copied.
func (c *weightCopy) finish() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, place := range c.places {
		c.err = errors.Join(c.err, place())
	}
	c.places = nil
	return c.err
}

// evalCopied tells the scheduler that all stages have copied a validation's weights.
type evalCopied struct{ Header }

// copyEval starts a copy of the validated weights, if one is wanted. The next order reaches the
// stages after it.
func (a *schedulerActor) copyEval() {
	if a.spec.CopyAtEval == nil {
		return
	}
	to, then := a.spec.CopyAtEval(a.state.Step)
	if to == nil {
		return
	}
	a.copying++
	a.copies = append(a.copies, &weightCopy{to: to, then: then, done: make(chan struct{}), left: a.spec.ranks()})
}

// takeWeights asks the scheduler for a copy, which it forwards to the stages.
type takeWeights struct{ *weightCopy }

func (takeWeights) IgnoreDeadLetterLogging() {}

// CopyWeights copies the weight of every parameter at the end of one step, the same on all stages,
// and returns the number of that step. to returns the memory for a parameter, by its Index. The
// stages copy between two of their actions while training continues; this changes no result. It
// returns when all have copied, or the run has ended; afterwards nothing touches the memory.
func (r *Run) CopyWeights(to func(param int) []float32) (step int64, err error) {
	if r.apart {
		return 0, fmt.Errorf("%w: the ranks are in other processes", ErrApart)
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
	return c.Step, c.finish()
}

// takeWeights starts a copy at once if no stage can have started the next update: the current order
// changes no weight, and the scheduler's messages reach a stage in order. With post-validation a
// stage may be ahead by one update, so the copy waits for the end of the step.
func (a *schedulerActor) takeWeights(ctx actor.Context, c *weightCopy) {
	a.copies = append(a.copies, c)
	if !a.spec.PostValidate || a.phase != event.Train {
		a.copyWeights(ctx)
	}
}

// copyWeights forwards the waiting copies.
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

// copyWeights copies this rank's weights, for the first request. It runs after the update of its
// step and before anything of the next step that could change a weight.
func (a *stageActor) copyWeights(ctx actor.Context) {
	c := a.copies[0]
	a.copies = append(a.copies[:0], a.copies[1:]...)
	stage, ok := a.stage.(WeightCopier)
	if !ok {
		a.copied(ctx, c, fmt.Errorf("%w: %s uses the program's own %T", ErrApart, a.spec.stageName(a.rank), a.stage))
		return
	}
	was := a.cell.Load()
	now := was
	now.Doing, now.Wait = event.Copying, event.WaitNothing
	a.cell.store(now)
	l := a.stream.NewList()
	if place := stage.CopyWeights(l, c.to); place != nil {
		c.mu.Lock()
		c.places = append(c.places, place)
		c.mu.Unlock()
	}
	a.submit(l, func(ctx actor.Context) {
		a.cell.store(was)
		a.copied(ctx, c, nil)
	})
}

// copied counts this stage's copy.
func (a *stageActor) copied(ctx actor.Context, c *weightCopy, err error) {
	if c.copied(err) && c.then != nil {
		ctx.Send(a.peers.Scheduler, &evalCopied{c.Header})
	}
}
