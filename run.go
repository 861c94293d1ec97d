package troupe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/internal/run/requests"
	"github.com/troupe-ml/troupe/internal/run/runlog"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// Run is a training run.
type Run struct {
	ctx       context.Context // the caller's; its end stops the run
	cfg       *config.Config  // as it was loaded
	apart     bool            // the ranks are in other processes
	out       outlet
	stop      func() bool // detaches from the context
	restarts  restarts
	marks     runlog.Marks
	snapshots snapshots
	done      chan struct{} // closed when result and err are final

	mu          sync.Mutex
	attempt     *attempt.Attempt // the last one that had the folder; nil: none has yet
	inner       *actors.Run      // its actors
	gap         gap
	requests    requests.Open
	killed      bool
	recordUntil time.Time        // when Record ends
	saved       trainstate.State // that the last checkpoint holds
	step        int64            // that has ended last, as the events tell
	result      Result
	err         error
}

// gap is the time between two attempts.
type gap struct {
	between   bool   // an attempt has ended, and the next has not begun
	interrupt func() // ends the wait for processes
	cut       bool   // the next attempt is to end, though it has not begun yet
}

// Start sets a run up and begins it. It resumes when the output folder holds a
// checkpoint. Errors of the configuration, the data and the folder are
// *SetupError; a folder in use by another process is checkpoint.ErrLocked, what can't
// be read at the moment checkpoint.ErrUnreadable (see checkpoint.TryAgain), and a full
// disk checkpoint.ErrNoSpace.
func Start(ctx context.Context, cfg *config.Config, o Options) (*Run, error) {
	own := *cfg // which stays as it is, whatever the caller does with cfg
	r := &Run{ctx: ctx, cfg: &own, apart: o.Hosts != nil, restarts: restarts{most: cfg.Cluster.MaxRestarts}, done: make(chan struct{}),
		out:    outlet{events: make(chan Event, LimitEvents), feed: feed.New(), traced: runlog.TraceEvery(cfg, o.Trace)},
		gap:    gap{between: true, interrupt: func() {}},
		result: Result{Steps: cfg.Run.Steps, LastValLoss: math.NaN()}}
	if err := r.startActor(o); err != nil {
		return nil, err
	}
	for _, c := range o.Requests {
		if err := c.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		if err := r.ask(c); err != nil {
			return nil, err
		}
	}
	if err := r.beginFirst(ctx, o); err != nil {
		r.out.actor.end(EndEvent{Err: err})
		return nil, err
	}
	r.stop = context.AfterFunc(ctx, r.Stop)
	go r.finish(o) // ends with the run
	return r, nil
}

// beginFirst makes the first attempt, and others while processes are lost before one has begun: nothing was trained or
// written yet, and there may be others.
func (r *Run) beginFirst(ctx context.Context, o Options) error {
	err := r.begin(ctx, o, 0)
	for plan.IsLost(err) {
		if !r.restarts.allows(err, 0) {
			return fmt.Errorf("%w: %w", ErrNoWorkers, r.restarts.exhausted(err))
		}
		next := r.begin(ctx, o, r.lease())
		if next != nil && !plan.IsLost(next) {
			return errors.Join(err, next)
		}
		err = next
	}
	return err
}

// lease is how long an attempt that follows the loss of a process waits for others.
func (r *Run) lease() time.Duration {
	return time.Duration(r.cfg.Cluster.LeaseS * float64(time.Second))
}

// begin makes an attempt at the run. ctx ends the wait for the processes that it needs.
func (r *Run) begin(ctx context.Context, o Options, wait time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.mu.Lock()
	if r.gap.interrupt = cancel; r.gap.cut {
		cancel()
	}
	r.mu.Unlock()
	a, err := attempt.Open(ctx, r.cfg, attempt.Options{Fresh: o.Fresh, FromStep: o.FromStep, AcceptNewData: o.AcceptNewData, Trace: o.Trace,
		Hosts: o.Hosts, Wait: wait, System: o.System, Logger: o.Logger}, r.env())
	if err != nil {
		return err
	}
	inner, err := a.Start()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inner = inner
	for _, late := range r.requests.Late() {
		inner.Ask(late)
	}
	if r.gap.between = false; r.killed {
		inner.Kill()
	}
	if d := time.Until(r.recordUntil); d > 0 {
		inner.Record(d)
	}
	return nil
}

// env is what an attempt asks of the run, and tells it.
func (r *Run) env() attempt.Env {
	return attempt.Env{Context: r.ctx, Event: r.send, Warn: r.warn, Marks: &r.marks, Unmarked: r.unmarked, Saved: r.noteSaved,
		Begun: func(a *attempt.Attempt) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.attempt, r.step = a, a.Step; a.LastValLoss != nil {
				r.result.LastValLoss = *a.LastValLoss
			}
		},
		Requests: func(step int64) []actors.Request {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.requests.Begin(step)
		}}
}

// finish waits for the end of the run and releases all that it held. When a process that computed ranks failed,
// the run resumes from its last checkpoint.
func (r *Run) finish(o Options) {
	var out actors.Outcome
	for again := true; again; {
		out = r.inner.Wait()
		out, again = r.recover(o, out)
	}
	r.stop()
	if d := (*DivergedError)(nil); errors.As(out.Err, &d) {
		d.Checkpoint = r.attempt.SavedBefore(d.First)
	}
	if errors.Is(out.Err, data.ErrVocab) {
		out.Err = &SetupError{Err: out.Err}
	}
	last := r.attempt.EndTexts(out.Err != nil)
	r.unmarked(r.marks.End(out, r.cfg.Run.Steps))
	r.end(out, errors.Join(r.restarts.exhausted(out.Err), last, r.snapshots.end(), r.attempt.Close()))
}

// end tells how the run has ended.
func (r *Run) end(out actors.Outcome, err error) {
	r.mu.Lock()
	r.out.tellDropped()
	r.requests.Clear()
	r.err = err
	res := &r.result
	res.Step, res.Stopped, res.Early, res.Updates = int(out.State.Step), out.Stopped, out.Early, out.Updates
	res.BestStep, res.FirstValLoss, res.BestValLoss = int(out.State.BestStep), deref(out.State.FirstValLoss), deref(out.State.BestValLoss)
	r.mu.Unlock()
	r.out.actor.end(EndEvent{Result: r.result, Err: r.err})
	r.out.feed.Close()
	close(r.out.events)
	close(r.done)
}

// recover makes another attempt where the last one ended since a process was lost, and reports
// whether it has begun. A run that is to end does so without one.
func (r *Run) recover(o Options, out actors.Outcome) (actors.Outcome, bool) {
	r.mu.Lock()
	r.gap.between = true
	r.mu.Unlock()
	if plan.IsLost(out.Err) { // before restarts are counted: a run that is asked to stop may end with the checkpoint that it has
		if end := r.stopped(out.Err); end != nil {
			return *end, false
		}
	}
	for err := out.Err; r.restarts.allows(err, r.lastSaved()); {
		if end := r.stopped(err); end != nil {
			return *end, false
		}
		next := r.goOn(o, err)
		if next == nil {
			return out, true
		}
		if end := r.stopped(err); end != nil {
			return *end, false
		}
		if errors.Is(next, context.Canceled) {
			out.Err = fmt.Errorf("%w; the run was asked to stop while it waited for other processes, and has written no checkpoint", err)
			return out, false
		}
		if out.Err = errors.Join(err, next); plan.IsLost(next) {
			out.Err = next
		}
		err = next
	}
	return out, false
}

// stopped is how a run ends that was asked to, after the loss err of a process; nil: it needs
// another attempt, to write a checkpoint.
func (r *Run) stopped(err error) *actors.Outcome {
	r.mu.Lock()
	r.gap.cut = false // what was asked until now is looked at here
	killed, stops, last, saved := r.killed, r.requests.Stops(r.saved.Step), r.saved, r.result.Dir != ""
	r.mu.Unlock()
	switch {
	case killed:
		return &actors.Outcome{State: last, Err: actors.ErrKilled}
	case !stops || !saved:
		return nil
	}
	r.warn("%v; the run was asked to stop: it ends with its last checkpoint, of step %d", err, last.Step)
	return &actors.Outcome{State: last, Stopped: true}
}

// goOn makes another attempt after one that has ended with err.
func (r *Run) goOn(o Options, err error) error {
	if rerr := r.attempt.Close(); rerr != nil {
		return errors.Join(err, rerr)
	}
	r.send(RestartEvent{Err: err, Restart: r.restarts.done, Most: r.restarts.most})
	o.Fresh, o.FromStep = false, 0 // that was obeyed
	return r.begin(context.WithoutCancel(r.ctx), o, r.lease())
}

// restarts counts how often a run was begun again since its last new checkpoint.
type restarts struct {
	most, done int
	step       int64 // of that checkpoint
}

// allows reports whether a run that ended with err is to go on by itself, from the
// checkpoint of a step.
func (r *restarts) allows(err error, step int64) bool {
	if !plan.IsLost(err) {
		return false
	}
	if step > r.step {
		r.step, r.done = step, 0
	}
	r.done++
	return r.done <= r.most
}

// exhausted says so of a run that may not go on.
func (r *restarts) exhausted(err error) error {
	if r.done <= r.most || r.done == 0 {
		return err
	}
	return fmt.Errorf("%w (restarted %d times since the checkpoint of step %d, which is cluster.max_restarts)", err, r.most, r.step)
}

// noteSaved notes the last checkpoint, as soon as it is written: the attempt may end before an
// event tells of it.
func (r *Run) noteSaved(state trainstate.State, dir string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result.Dir, r.saved = dir, state
}

// lastSaved is the step of the last checkpoint.
func (r *Run) lastSaved() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved.Step
}

// Wait waits for the end of the run. Nothing of it is left behind then.
func (r *Run) Wait() (Result, error) {
	<-r.done
	return r.result, r.err
}

func deref(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
