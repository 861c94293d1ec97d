package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// run is one that a coordinator was asked for, from then until it is no longer listed.
type run struct {
	c         *Coordinator
	entry     entry // what the journal has of it; guarded by runs.mu
	forgotten bool  // the journal is to have it no more; guarded by runs.mu
	id, name  string
	by        string
	cfg       *config.Config
	submitted time.Time
	ctx       context.Context // its end stops the run, with a checkpoint
	cancel    context.CancelFunc
	done      chan struct{} // closed when it has ended

	mu        sync.Mutex
	state     wire.RunSummary_State
	want      int             // workers to wait for when it is taken up; 0: none
	inner     *troupe.Run     // nil: it has not begun
	uuid      uuid.UUID       // that the run's own files have
	workers   []string        // names
	hosts     map[int]string  // by rank: the worker's name
	asked     bool            // somebody has asked it to end
	requested []troupe.Change // before it has begun
	late      []troupe.Change // of them, those that came since start has given the others to troupe.Start
	info      *wire.RunEvent
	events    []*wire.RunEvent // the last ones
	number    uint64           // of the last one
	followers map[*follower]struct{}
	followed  uint64         // number of the last follower
	answers   []changeAnswer // that who asked for a change waits for
	stops     []int64        // steps with which it ends, as somebody has asked
	ended     time.Time
	step      int64
	loss, val *float64
	dir       string
	restarts  int32
	waiting   waiting
	err       error
}

// waiting is what a run waits for before it begins, or is resumed.
type waiting struct {
	text string    // "": nothing
	next time.Time // of the next try; zero: none, it is told when there is something new
}

func (w waiting) String() string {
	if w.text == "" || w.next.IsZero() {
		return w.text
	}
	return fmt.Sprintf("%s; next try in %.1f s", w.text, max(0, time.Until(w.next).Seconds()))
}

// follower is one who gets a run's events as they come.
type follower struct {
	events chan *wire.RunEvent // closed at the run's end, and when it was too slow
	slow   bool                // set before
	number uint64              // of this run's followers, from 1
	until  time.Time           // it wants traces; the run's mu
	traces atomic.Int32        // of the events that wait for it
}

// changeAnswer is what the run says to a change.
type changeAnswer struct {
	change troupe.Change
	err    chan error // with room for it
}

// runHosts are the workers for a run.
type runHosts struct {
	hosts
	r *run
}

// Choose notes which workers the run gets. One that is taken up waits for as many as it
// had, and then for any at all.
func (h *runHosts) Choose(ctx context.Context, cfg *config.Config, wait time.Duration) (plan.Workers, error) {
	h.r.mu.Lock()
	want := h.r.want
	h.r.mu.Unlock()
	if want > 0 {
		if h.waitFor(ctx, want, sayTime) != nil && ctx.Err() == nil {
			h.mu.Lock()
			_, gpu := kindsOf(cfg)
			seen := h.seen(gpu)
			h.mu.Unlock()
			h.tellWaiting(fmt.Sprintf("the run waits for %s, as many as it had, and for %.0f s more at most (%s)", words.Plural(want, "worker"), (takeUpWait - sayTime).Seconds(), cmp.Or(seen, "none has joined")))
			_ = h.waitFor(ctx, want, takeUpWait-sayTime) // with fewer it goes on all the same
		}
		wait = forever
	}
	w, err := h.hosts.Choose(ctx, cfg, wait)
	if err != nil {
		return nil, err
	}
	var names []string
	of := make(map[int]string)
	if a, ok := w.(*attempt); ok {
		for _, s := range a.shares {
			names = append(names, s.Name)
			for _, rank := range s.ranks {
				of[rank] = s.Name
			}
		}
	}
	h.r.mu.Lock()
	h.r.workers, h.r.hosts = names, of
	h.r.mu.Unlock()
	return &runWorkers{w, h.r}, nil
}

// waitFor waits for so many workers for some time.
func (h *runHosts) waitFor(ctx context.Context, workers int, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return h.Wait(ctx, workers)
}

// forever is longer than any coordinator lives.
const forever = 100 * 365 * 24 * time.Hour

// runWorkers are workers that were chosen for a run.
type runWorkers struct {
	plan.Workers
	r *run
}

// Assign notes the run's own id, and before the run's folder is written to that it is.
func (w *runWorkers) Assign(ctx context.Context, a plan.Assignment) (plan.Ranks, error) {
	w.r.mu.Lock()
	w.r.uuid = a.Run
	w.r.mu.Unlock()
	ranks, err := w.Workers.Assign(ctx, a)
	if err != nil {
		return ranks, err
	}
	err = w.r.c.runs.note(w.r, func(e *entry) {
		if e.State == submitted {
			e.State, e.Workers = beginning, len(w.r.workerNames())
		}
	})
	w.r.c.cfg.at(pointPlaced)
	return ranks, err
}

// start begins the run. What it needs is opened and read before it returns.
func (r *run) start(o troupe.Options) error {
	r.mu.Lock()
	o.Requests, r.late = slices.Clone(r.requested), nil
	r.mu.Unlock()
	o.Hosts, o.Logger = &runHosts{hosts{Coordinator: r.c, notice: r.waits}, r}, r.c.log
	inner, err := troupe.Start(r.ctx, r.cfg, o)
	if err != nil {
		return err
	}
	if r.c.cfg.Began != nil {
		r.c.cfg.Began(r.id, r.cfg, inner)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inner, r.want, r.waiting = inner, 0, waiting{}
	if r.state != wire.RunSummary_STOPPING {
		r.state = wire.RunSummary_RUNNING
	}
	r.info = &wire.RunEvent{Kind: &wire.RunEvent_Info{Info: packInfo(inner.Info())}}
	r.step = int64(inner.Info().ResumedAt)
	r.publish(r.info)
	for _, c := range r.late {
		if err := inner.Change(c); err != nil {
			r.c.log.Error("a request is lost", "run", r.id, "request", c.String(), "err", err)
		}
	}
	r.requested, r.late = nil, nil
	return nil
}

// requests are what was asked of the run and is not done yet.
func (r *run) requests() []troupe.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		return slices.Clone(r.requested)
	}
	return r.inner.Requests()
}

// request keeps a change for the run, which has not begun. mu is held.
func (r *run) request(ch troupe.Change) error {
	if ch.Kind == event.ChangeResume {
		// Those that troupe.Start was given it knows, and has to hear that they are taken back.
		taken := func(o troupe.Change) bool { return o.Kind == event.ChangePause || o.Kind == event.ChangeResume }
		r.requested, r.late = slices.DeleteFunc(r.requested, taken), slices.DeleteFunc(r.late, taken)
	}
	switch {
	case slices.Contains(r.requested, ch):
		return nil
	case len(r.requested) >= troupe.LimitRequests:
		return fmt.Errorf("%w: run %s has not begun, and %d changes wait for it, the limit", ErrTryAgain, r.id, len(r.requested))
	}
	r.requested, r.late = append(r.requested, ch), append(r.late, ch)
	if ch.Kind == event.ChangeStop {
		r.stops = append(r.stops, ch.Step)
	}
	return nil
}

// waits tells who follows what the run waits for.
func (r *run) waits(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitFor(waiting{text: text})
}

// waitFor is waits, with the time of the next try. mu is held.
func (r *run) waitFor(w waiting) {
	r.waiting = w
	r.publish(&wire.RunEvent{Kind: &wire.RunEvent_Waiting{Waiting: &wire.WaitingEvent{Text: clean(w.String(), limitErrorBytes)}}})
}

// watch passes the run's events on until it has ended, and returns how.
func (r *run) watch() (troupe.Result, error) {
	for e := range r.inner.Events() {
		r.mu.Lock()
		r.note(e)
		if w := packEvent(e); w != nil {
			if s, ok := e.(troupe.StepEvent); ok {
				r.publishStep(w, s)
			} else {
				r.publish(w)
			}
		}
		r.mu.Unlock()
		if err := r.c.runs.keep(r); err != nil {
			r.c.log.Error("what was asked of a run is not noted; a coordinator that is started again does not know it", "run", r.id, "err", err)
		}
	}
	return r.inner.Wait()
}

// note keeps what a list of runs shows. mu is held.
func (r *run) note(e troupe.Event) {
	switch e := e.(type) {
	case troupe.StepEvent:
		r.step, r.waiting = int64(e.Step), waiting{} // for what it may have waited when it recovered
		if e.Loss != nil {
			r.loss = e.Loss
		}
		if e.ValLoss != nil {
			r.val = e.ValLoss
		}
	case troupe.CheckpointEvent:
		r.dir = e.Dir
	case troupe.RestartEvent:
		r.restarts++
	case troupe.ChangeEvent:
		// What is asked for names its step, which the event has, too.
		if i := slices.IndexFunc(r.answers, func(a changeAnswer) bool { return a.change.Kind == e.Kind && a.change.Step == e.Step }); i >= 0 {
			if r.answers[i].err <- e.Err; e.Err == nil {
				r.stops = append(r.stops, e.Step)
			}
			r.answers = slices.Delete(r.answers, i, i+1)
		}
	case troupe.PauseEvent:
		if r.state == wire.RunSummary_STOPPING {
			break
		}
		if r.state = wire.RunSummary_RUNNING; e.Paused {
			r.state = wire.RunSummary_PAUSED
		}
	}
}

// publish numbers an event, keeps it and gives it to who follows. mu is held.
func (r *run) publish(e *wire.RunEvent) {
	r.publishTo(e, func(*follower) *wire.RunEvent { return e })
}

// publishTo is publish, with what of returns for who follows. mu is held.
func (r *run) publishTo(e *wire.RunEvent, of func(*follower) *wire.RunEvent) {
	r.number++
	e.Number = r.number
	if r.events = append(r.events, e); len(r.events) > limitEvents {
		r.events = slices.Delete(r.events, 0, len(r.events)-limitEvents)
	}
	for f := range r.followers {
		select {
		case f.events <- of(f):
		default:
			f.slow = true
			r.drop(f)
		}
	}
}

// drop ends a follower. mu is held.
func (r *run) drop(f *follower) {
	delete(r.followers, f)
	close(f.events)
}

// follow gives what has happened behind an event, and what is to come. The description of
// the run comes first, however long ago it was, unless the follower has it.
func (r *run) follow(after uint64) (past []*wire.RunEvent, f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.info != nil && r.info.Number > after {
		past = append(past, r.info)
	}
	if len(r.events) > 0 && after > 0 && r.events[0].Number > after+1 {
		past = append(past, warning(fmt.Sprintf("%d events are no longer kept", r.events[0].Number-after-1)))
	}
	for _, e := range r.events {
		over := e.GetWaiting() != nil && e.Number < r.info.GetNumber() // it has begun since
		if e.Number > after && e != r.info && !over {
			past = append(past, e)
		}
	}
	r.followed++
	f = &follower{events: make(chan *wire.RunEvent, limitFollowerEvents), number: r.followed}
	if r.followers[f] = struct{}{}; r.over() {
		r.drop(f)
	}
	return past, f
}

// leave ends a follower that goes by itself.
func (r *run) leave(f *follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, f)
}

// over reports whether the run has ended. mu is held.
func (r *run) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return !r.ended.IsZero()
	}
}

// end notes how the run ended. An interrupted one goes on with the next coordinator: who
// follows is not told an end.
func (r *run) end(res troupe.Result, err error, interrupted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.err = time.Now(), err
	if res.Dir != "" {
		r.dir = res.Dir
	}
	if res.Step > 0 {
		r.step = int64(res.Step)
	}
	switch {
	case err != nil:
		r.state = wire.RunSummary_FAILED
	case res.Stopped:
		r.state = wire.RunSummary_STOPPED
	default:
		r.state = wire.RunSummary_DONE
	}
	if !interrupted {
		r.publish(&wire.RunEvent{Kind: &wire.RunEvent_End{End: packEnd(res, err)}})
	}
	for f := range r.followers {
		r.drop(f)
	}
	if more := len(r.events) - limitEndedEvents; more > 0 {
		r.events = slices.Clone(r.events[more:])
	}
	close(r.done)
}

// changeKinds are the changes of a run that an operator may ask for.
var changeKinds = map[wire.ControlRequest_Action]event.ChangeKind{wire.ControlRequest_PAUSE: event.ChangePause, wire.ControlRequest_RESUME: event.ChangeResume,
	wire.ControlRequest_CHECKPOINT: event.ChangeCheckpoint, wire.ControlRequest_STOP: event.ChangeStop, wire.ControlRequest_RATE: event.ChangeRate}

// control does what somebody asks of the run.
func (r *run) control(m *wire.ControlRequest) error {
	action := m.GetAction()
	kind := changeKinds[action]
	if kind == "" || action == wire.ControlRequest_STOP && m.GetStep() == 0 {
		return r.stop(action)
	}
	ch := troupe.Change{Kind: kind, Step: m.GetStep(), LR: m.GetLr(), MinLR: m.GetMinLr()}
	wait, err := r.change(ch)
	if err != nil || wait == nil {
		return err
	}
	timeout := time.NewTimer(changeTime)
	defer timeout.Stop()
	select {
	case err = <-wait:
	case <-r.done:
		select {
		case err = <-wait: // it came first
		default:
			err = fmt.Errorf("run %s has ended", r.id)
		}
	case <-timeout.C: // between two attempts; it is asked for in the next
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return nil
}

// change asks the run for a change. Of a stop at a step the answer comes: whether that has
// ended only the run itself knows.
func (r *run) change(ch troupe.Change) (wait chan error, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over():
		return nil, fmt.Errorf("%w: run %s has ended", ErrRequest, r.id)
	case r.inner == nil:
		if err := ch.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrRequest, err)
		}
		return nil, r.request(ch)
	}
	if ch.Kind == event.ChangeStop {
		if len(r.answers) >= limitRequests {
			return nil, fmt.Errorf("%w: %d others wait for the run's answer", ErrTryAgain, len(r.answers))
		}
		wait = make(chan error, 1)
		r.answers = append(r.answers, changeAnswer{ch, wait})
	}
	if err := r.inner.Change(ch); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return wait, nil
}

// stop ends the run, at the end of its step or at once.
func (r *run) stop(action wire.ControlRequest_Action) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over() {
		return fmt.Errorf("%w: run %s has ended", ErrRequest, r.id)
	}
	switch action {
	case wire.ControlRequest_STOP, wire.ControlRequest_KILL:
		r.asked, r.state = true, wire.RunSummary_STOPPING
		switch {
		case r.inner == nil:
		case action == wire.ControlRequest_KILL:
			r.inner.Kill()
			return nil
		default:
			r.inner.Stop()
			return nil
		}
		r.cancel()
	default:
		return fmt.Errorf("%w: no such action: %d", ErrRequest, action)
	}
	return nil
}

// kill ends a run without a checkpoint.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel()
	if r.inner != nil {
		r.inner.Kill()
	}
}

// status is what every actor of the run is doing.
func (r *run) status() event.Status {
	r.mu.Lock()
	inner, hosts := r.inner, r.hosts
	r.mu.Unlock()
	if inner == nil {
		return event.Status{Time: time.Now(), Requests: r.requests()}
	}
	s := inner.Status()
	for i, a := range s.Actors {
		if a.Rank >= 0 && a.Host == "" { // nothing was heard of it yet
			s.Actors[i].Host = hosts[a.Rank]
		}
	}
	return s
}

// summary describes the run in a few words.
func (r *run) summary() *wire.RunSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &wire.RunSummary{Id: r.id, Name: r.name, State: r.state, Step: r.step, Steps: int64(r.cfg.Run.Steps), Loss: r.loss, ValLoss: r.val, Workers: r.workers, SubmittedNs: r.submitted.UnixNano(),
		SubmittedBy: r.by, Out: clean(r.cfg.Run.Out, limitErrorBytes), Restarts: r.restarts, Dir: clean(r.dir, limitErrorBytes)}
	if !r.ended.IsZero() {
		s.EndedNs = r.ended.UnixNano()
	}
	if r.err != nil {
		s.Error = clean(r.err.Error(), limitErrorBytes)
	} else if r.ended.IsZero() {
		s.Waiting = clean(r.waiting.String(), limitErrorBytes)
	}
	return s
}

// ids are what the run is called in logs.
func (r *run) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []string{r.id, r.uuid.String()}
}
