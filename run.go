package troupe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/attempt"
	"github.com/troupe-ml/troupe/internal/run/control"
	"github.com/troupe-ml/troupe/internal/run/feed"
	"github.com/troupe-ml/troupe/internal/run/requests"
	"github.com/troupe-ml/troupe/internal/run/runlog"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/telemetry"
)

// Run is a training run. Start returns one. Its methods may be called from any goroutine.
type Run struct {
	ctx       context.Context // the caller's; its end stops the run
	cfg       *config.Config  // as loaded
	apart     bool            // the ranks are in other processes
	out       outlet
	stop      func() bool       // detaches from the context
	preparing func(text string) // Options.Preparing; nil: there is none, or Start has returned
	restarts  attempt.Restarts
	marks     runlog.Marks
	snapshots snapshots
	control   *control.Server // nil: the run does not listen
	done      chan struct{}   // closed when result and err are final

	// unreplaced says why the ranks of the last failed worker were not replaced; "": no worker failed.
	unreplaced string
	// halfway is why a renewed attempt was begun that has ended before all ranks had their state; nil: none has.
	halfway error

	mu          sync.Mutex
	attempt     *attempt.Attempt // the last one that has opened the folder; nil: none has yet
	inner       *actors.Run      // its actors
	gap         gap
	requests    requests.Open
	killed      bool
	recordUntil time.Time        // when Record ends
	saved       trainstate.State // of the last checkpoint
	step        int64            // the last one that has ended
	pausedAt    int64            // the step at which the run has paused; -1: it is not paused
	meter       telemetry.Meter  // for an estimate of the remaining time
	result      Result
	err         error
}

// Start sets up a run and starts it. If the output folder has a checkpoint, the run resumes from it.
// The end of ctx stops the run, as Stop does. Errors of the configuration, the data and the folder are
// *SetupError. Other errors are checkpoint.ErrLocked if another process uses the folder,
// checkpoint.ErrUnreadable if a file cannot be read at the moment (see checkpoint.TryAgain), and
// checkpoint.ErrNoSpace for a full disk.
func Start(ctx context.Context, cfg *config.Config, o Options) (*Run, error) {
	own := *cfg // the caller may change cfg
	r := &Run{ctx: ctx, cfg: &own, apart: o.Hosts != nil, restarts: attempt.Restarts{Most: cfg.Cluster.MaxRestarts},
		done:      make(chan struct{}),
		preparing: o.Preparing,
		out:       outlet{events: make(chan Event, LimitEvents), feed: feed.New(), traced: runlog.TraceEvery(cfg, o.Trace)},
		gap:       gap{between: true, interrupt: func() {}}, pausedAt: -1,
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
	var events *Subscription
	if o.Control { // before the first step, which may end before the run listens
		events = r.Subscribe()
	}
	if err := r.startFirst(ctx, o); err != nil {
		r.out.actor.end(EndEvent{Err: err})
		return nil, err
	}
	r.preparing = nil
	r.stop = context.AfterFunc(ctx, r.Stop)
	if o.Control {
		r.listen(events)
	}
	go r.finish(o) // ends with the run
	return r, nil
}

// startFirst starts the first attempt. If workers fail before it has started, it tries again with others: nothing was trained or
// written yet.
func (r *Run) startFirst(ctx context.Context, o Options) error {
	err := r.startAttempt(ctx, o, 0)
	for plan.IsLost(err) {
		if !r.restarts.Allows(err, 0) {
			return fmt.Errorf("%w: %w", ErrNoWorkers, r.restarts.Exhausted(err))
		}
		next := r.startAttempt(ctx, o, r.lease())
		if next != nil && !plan.IsLost(next) {
			return errors.Join(err, next)
		}
		err = next
	}
	return err
}

// lease is how long an attempt waits for workers after one has failed.
func (r *Run) lease() time.Duration {
	return time.Duration(r.cfg.Cluster.LeaseS * float64(time.Second))
}

// startAttempt starts an attempt of the run. ctx ends the wait for the workers that it needs.
func (r *Run) startAttempt(ctx context.Context, o Options, wait time.Duration) error {
	ctx, cancel := r.wait(ctx)
	defer cancel()
	a, err := attempt.Open(ctx, r.cfg, attempt.Options{Fresh: o.Fresh, FromStep: o.FromStep, AcceptNewData: o.AcceptNewData, Trace: o.Trace,
		Hosts: o.Hosts, Wait: wait, System: o.System, Logger: o.Logger}, r.env())
	if err != nil {
		return err
	}
	inner, err := a.Start()
	if err != nil {
		return err
	}
	r.begin(inner)
	return nil
}

// begin passes to an attempt that has started what was requested meanwhile.
func (r *Run) begin(inner *actors.Run) {
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
}

// env is what an attempt calls in the run.
func (r *Run) env() attempt.Env {
	return attempt.Env{Context: r.ctx, Event: r.send, Warn: r.warn, Prepare: r.prepare, Marks: &r.marks, Unmarked: r.unmarked,
		Saved: r.noteSaved,
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
		},
		Renewed: func(step int64) []actors.Request {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.requests.Renew(step, r.saved.Step)
		}}
}

// finish waits for the end of the run and releases its resources. After a worker fails, the run restarts from its last
// checkpoint.
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
	if plan.IsLost(out.Err) && o.Logger != nil { // the actors have logged other failures
		o.Logger.Error("run failed", "run", r.Info().ID, "step", out.State.Step, "err", out.Err)
	}
	r.control.Shut()
	last := r.attempt.EndTexts(out.Err != nil)
	r.unmarked(r.marks.End(out, r.cfg.Run.Steps))
	r.end(out, errors.Join(r.restarts.Exhausted(out.Err), last, r.snapshots.end(), r.attempt.Close()))
}

// end sets the result and tells the readers.
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
	r.control.Close(EndEvent{Result: r.result, Err: r.err})
	close(r.out.events)
	close(r.done)
}

// recover starts another attempt if the last one ended because a worker failed, or to use other workers, and reports
// whether it has started. A run that was requested to stop may end without one.
func (r *Run) recover(o Options, out actors.Outcome) (actors.Outcome, bool) {
	r.mu.Lock()
	r.gap.between = true
	r.mu.Unlock()
	if plan.IsLost(out.Err) && r.renew(o, out) {
		return out, true
	}
	r.mu.Lock()
	r.pausedAt = -1 // the next attempt pauses again if a pause is open
	r.mu.Unlock()
	// before restarts are counted: a run that must stop may end with the checkpoint that it has
	if plan.IsLost(out.Err) || out.Regroup != nil {
		if end := r.stopped(out.Err); end != nil {
			return *end, false
		}
	}
	if out.Regroup != nil {
		next := r.regroup(o, *out.Regroup)
		if next == nil {
			return out, true
		}
		if end := r.stopped(nil); end != nil {
			return *end, false
		}
		out.Regroup, out.Err = nil, next
	}
	for err := out.Err; r.restarts.Allows(err, r.lastSaved()); {
		if end := r.stopped(err); end != nil {
			return *end, false
		}
		next := r.restart(o, err)
		if next == nil {
			return out, true
		}
		if end := r.stopped(err); end != nil {
			return *end, false
		}
		if errors.Is(next, context.Canceled) {
			out.Err = fmt.Errorf("%w; a stop was requested while the run waited for workers, and there is no checkpoint", err)
			return out, false
		}
		if out.Err = errors.Join(err, next); plan.IsLost(next) {
			out.Err = next
		}
		err = next
	}
	return out, false
}

// stopped is the outcome of a run that was requested to stop, after the failure err of a worker, nil if none has
// failed; nil: it needs another attempt, to write a checkpoint.
func (r *Run) stopped(err error) *actors.Outcome {
	r.mu.Lock()
	r.gap.cut = false // requests until now are handled here
	killed, stops, last, saved := r.killed, r.requests.Stops(r.saved.Step), r.saved, r.result.Dir != ""
	r.mu.Unlock()
	switch {
	case killed:
		return &actors.Outcome{State: last, Err: actors.ErrKilled}
	case !stops || !saved:
		return nil
	}
	if err != nil {
		r.warn("%v; a stop was requested: the run ends with its last checkpoint, of step %d", err, last.Step)
	}
	return &actors.Outcome{State: last, Stopped: true}
}

// replaceTime is how long a run waits for a worker in the place of one that has failed, before it restarts from its last checkpoint: about
// the time in which a worker is started again.
const replaceTime = 3 * time.Second

// renew continues after an attempt that has lost workers, with others in their place, and reports whether it does. If not, the run
// restarts.
func (r *Run) renew(o Options, out actors.Outcome) bool {
	c := out.Carry
	r.mu.Lock()
	killed := r.killed
	r.gap.cut = false // requests until now are in the open ones
	r.mu.Unlock()
	var err error
	switch {
	case killed:
		err = actors.ErrKilled
	case c == nil:
		err = out.Unkept // nil if a stage has failed before its process was known to be lost
	case !r.restarts.Renews(out.State.Step):
		err = fmt.Errorf("%d replacements have led to no step after step %d (cluster.max_restarts)", r.restarts.Most, out.State.Step)
	default:
		if err = r.replace(out); err == nil {
			return true
		}
	}
	if c != nil {
		err = errors.Join(err, r.attempt.Flush(c))
	}
	if !killed && err != nil && o.Logger != nil {
		o.Logger.Warn("the ranks of a failed worker cannot be replaced", "run", r.Info().ID, "err", err)
	}
	if r.unreplaced = ""; err != nil {
		r.unreplaced = err.Error()
	}
	return false
}

// replace starts an attempt that adopts the stages of the last one.
func (r *Run) replace(out actors.Outcome) error {
	e := ReplaceEvent{Step: out.State.Step, Ranks: out.Lost, Err: out.Err, Source: r.attempt.Source()}
	if r.halfway != nil {
		e.Err = fmt.Errorf("%w; %w", r.halfway, out.Err)
	}
	r.halfway = e.Err
	noticed, name := time.Now(), ""
	if lost := (*plan.LostError)(nil); errors.As(out.Err, &lost) {
		if name = lost.Worker; !lost.At.IsZero() {
			noticed = lost.At
		}
	}
	ctx, cancel := r.wait(context.WithoutCancel(r.ctx))
	defer cancel()
	e.Halted = time.Since(noticed)
	inner, err := r.attempt.Renew(ctx, out.Carry, name, replaceTime, func() { e.Found = time.Since(noticed) }, func(read []int64) Event {
		e.Loaded, e.Ranks = time.Since(noticed), r.attempt.Replaced()
		r.halfway = nil // before the attempt ends, and so before anything else reads it
		for rank, n := range read {
			if slices.Contains(e.Ranks, rank) {
				e.Bytes += n
			} else {
				e.KeptBytes += n
			}
		}
		return e
	})
	if err != nil {
		return err
	}
	r.begin(inner)
	return nil
}

// restart starts another attempt after one that has ended with err.
func (r *Run) restart(o Options, err error) error {
	if rerr := r.attempt.Close(); rerr != nil {
		return errors.Join(err, rerr)
	}
	if o.Logger != nil {
		o.Logger.Warn("a worker failed; restarting from the last checkpoint", "run", r.Info().ID,
			"restart", fmt.Sprintf("%d of %d", r.restarts.Done, r.restarts.Most), "err", err)
	}
	r.send(RestartEvent{Err: err, Restart: r.restarts.Done, Most: r.restarts.Most, Why: r.unreplaced})
	r.unreplaced = ""
	return r.startNext(o)
}

// regroup starts another attempt after one that has ended with a checkpoint, to use other workers.
func (r *Run) regroup(o Options, e RegroupEvent) error {
	r.send(e) // while the folder is open, for events.jsonl
	if err := r.attempt.Close(); err != nil {
		return err
	}
	return r.startNext(o)
}

func (r *Run) startNext(o Options) error {
	o.Fresh, o.FromStep = false, 0 // the first attempt has done that
	r.halfway = nil
	return r.startAttempt(context.WithoutCancel(r.ctx), o, r.lease())
}

// noteSaved records the last checkpoint as soon as it is written: the attempt may end before the
// event.
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

// Wait waits for the end of the run and returns its result. The run has then released all its resources.
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
