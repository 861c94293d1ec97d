package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// run is a submitted run, until it is no longer listed.
type run struct {
	c         *Coordinator
	entry     journal.Entry // its entry in the journal; guarded by runs.mu
	forgotten bool          // it must not be in the journal any more; guarded by runs.mu
	queued    bool          // it waits in the queue; guarded by runs.mu
	id, name  string
	by        string
	cfg       *config.Config
	submitted time.Time
	ctx       context.Context // its end stops the run, with a checkpoint
	cancel    context.CancelFunc
	done      chan struct{} // closed when it has ended

	mu        sync.Mutex
	state     wire.RunSummary_State
	want      int             // workers to wait for when it resumes; 0: none
	inner     *troupe.Run     // nil: it has not begun
	uuid      uuid.UUID       // the id in the run's own files
	workers   []string        // names
	hosts     map[int]string  // by rank: the worker's name
	asked     bool            // a client has requested a stop
	requested []troupe.Change // requests from before it began
	late      []troupe.Change // the requests among them that came after start passed the others to troupe.Start
	info      *wire.RunEvent
	events    []*wire.RunEvent // the last ones
	number    uint64           // of the last event
	followers map[*follower]struct{}
	followed  uint64         // number of the last follower
	answers   []changeAnswer // answers that clients wait for
	stops     []int64        // steps at which clients have requested a stop
	ended     time.Time
	step      int64
	lost      int64 // steps that it repeated
	restarted bool  // it restarts from a checkpoint, and has completed no step since
	loss, val *float64
	dir       string
	restarts  int32
	waiting   waiting
	err       error
}

// waiting is what a run waits for before it begins or resumes.
type waiting struct {
	text string    // "": nothing
	next time.Time // of the next try; zero: there is none, a change wakes the run
}

func (w waiting) String() string {
	if w.text == "" || w.next.IsZero() {
		return w.text
	}
	return fmt.Sprintf("%s; next try in %.1f s", w.text, max(0, time.Until(w.next).Seconds()))
}

// start begins the run. Its files are open and read when start returns.
func (r *run) start(o troupe.Options) error {
	r.mu.Lock()
	o.Requests, r.late = slices.Clone(r.requested), nil
	r.mu.Unlock()
	o.Hosts, o.Logger = &runHosts{hosts{Coordinator: r.c, notice: r.waits}, r}, r.c.log
	o.Preparing = func(text string) {
		r.c.log.Info("run prepares", "run", r.id, "by", text)
		r.waits(text)
	}
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
	r.info = &wire.RunEvent{Kind: &wire.RunEvent_Info{Info: apiwire.PackInfo(inner.Info())}}
	r.resumesFrom(int64(inner.Info().ResumedAt))
	r.publish(r.info)
	for _, c := range r.late {
		if err := inner.Change(c); err != nil {
			r.c.log.Error("can't pass a request to the run", "run", r.id, "request", c.String(), "err", err)
		}
	}
	r.requested, r.late = nil, nil
	return nil
}

// requests returns the run's pending requests.
func (r *run) requests() []troupe.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		return slices.Clone(r.requested)
	}
	return r.inner.Requests()
}

// request keeps a change for a run that has not begun. mu is held.
func (r *run) request(ch troupe.Change) error {
	if ch.Kind == event.ChangeResume {
		// troupe.Start may already have the pauses, so it must get the resume too.
		taken := func(o troupe.Change) bool { return o.Kind == event.ChangePause || o.Kind == event.ChangeResume }
		r.requested, r.late = slices.DeleteFunc(r.requested, taken), slices.DeleteFunc(r.late, taken)
	}
	switch {
	case slices.Contains(r.requested, ch):
		return nil
	case len(r.requested) >= troupe.LimitRequests:
		return fmt.Errorf("%w: run %s has not begun and already has %d pending requests, the limit", ErrTryAgain, r.id, len(r.requested))
	}
	r.requested, r.late = append(r.requested, ch), append(r.late, ch)
	if ch.Kind == event.ChangeStop {
		r.stops = append(r.stops, ch.Step)
	}
	return nil
}

// waits tells the followers what the run waits for.
func (r *run) waits(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waitFor(waiting{text: text})
}

// waitFor is waits, with the time of the next try. mu is held.
func (r *run) waitFor(w waiting) {
	r.waiting = w
	r.publish(&wire.RunEvent{Kind: &wire.RunEvent_Waiting{Waiting: &wire.WaitingEvent{Text: words.Cut(w.String(), apiwire.LimitErrorBytes)}}})
}

// watch passes on the run's events until the run has ended, and returns how it ended.
func (r *run) watch() (troupe.Result, error) {
	for e := range r.inner.Events() {
		r.mu.Lock()
		r.note(e)
		if w := apiwire.PackEvent(e); w != nil {
			if s, ok := e.(troupe.StepEvent); ok {
				r.publishStep(w, s)
			} else {
				r.publish(w)
			}
		}
		r.mu.Unlock()
		if err := r.c.runs.keep(r); err != nil {
			r.c.log.Error("can't write a run's requests to the journal; a restarted coordinator won't know them", "run", r.id, "err", err)
		}
	}
	return r.inner.Wait()
}

// note updates the run's summary from an event. mu is held.
func (r *run) note(e troupe.Event) {
	switch e := e.(type) {
	case troupe.StepEvent:
		if r.restarted {
			r.resumesFrom(int64(e.Step) - 1)
		}
		r.step, r.waiting = int64(e.Step), waiting{} // it may have waited during a recovery
		if e.Loss != nil {
			r.loss = e.Loss
		}
		if e.ValLoss != nil {
			r.val = e.ValLoss
		}
	case troupe.CheckpointEvent:
		if !e.Weights {
			r.dir = e.Dir
		}
	case troupe.RestartEvent:
		r.restarts++
		r.c.runs.restarts.Add(1)
		r.restarted = true
	case troupe.ReplaceEvent:
		r.c.log.Info(markText(e, e.Step), "run", r.id)
	case troupe.RegroupEvent:
		r.c.log.Info(markText(e, e.Step), "run", r.id)
	case troupe.ChangeEvent:
		// A requested change names its step, and so does the event.
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

// resumesFrom counts the steps after a checkpoint that the run repeats. mu is held.
func (r *run) resumesFrom(step int64) {
	r.lost += max(0, r.step-max(0, step))
	r.step, r.restarted = max(0, step), false
}

// repeated returns the number of the run's restarts, and of the steps that it repeated.
func (r *run) repeated() (restarts int32, lost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restarts, r.lost
}

// markText says why a run changed its workers.
func markText(e troupe.Event, step int64) string {
	m, _ := event.MarkOf(e, int(step))
	return m.Text
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

// end stores how the run ended. An interrupted run resumes with the next coordinator, so followers
// get no end event.
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
	r.state = endState(res, err)
	if !interrupted {
		r.publish(&wire.RunEvent{Kind: &wire.RunEvent_End{End: apiwire.PackEnd(res, err)}})
	}
	for f := range r.followers {
		r.drop(f)
	}
	if more := len(r.events) - limitEndedEvents; more > 0 {
		r.events = slices.Clone(r.events[more:])
	}
	close(r.done)
}

// status returns what every actor of the run is doing.
func (r *run) status() event.Status {
	r.mu.Lock()
	inner, hosts := r.inner, r.hosts
	r.mu.Unlock()
	if inner == nil {
		return event.Status{Time: time.Now(), Requests: r.requests()}
	}
	s := inner.Status()
	for i, a := range s.Actors {
		if a.Rank >= 0 && a.Host == "" { // before its worker's first beat
			s.Actors[i].Host = hosts[a.Rank]
		}
	}
	return s
}

// summary returns the run's description for lists.
func (r *run) summary() *wire.RunSummary { return r.summaryAt(r.c.runs.position(r)) }

// summaryAt is summary with the run's position in the queue; 0: it is not in the queue.
func (r *run) summaryAt(position int) *wire.RunSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &wire.RunSummary{Id: r.id, Name: r.name, State: r.state, Step: r.step, Steps: int64(r.cfg.Run.Steps), Loss: r.loss, ValLoss: r.val,
		Workers: r.workers, SubmittedNs: r.submitted.UnixNano(),
		SubmittedBy: r.by, Out: words.Cut(r.cfg.Run.Out, apiwire.LimitErrorBytes), Restarts: r.restarts,
		LostSteps: r.lost, QueuePosition: apiwire.Small(position),
		Dir: words.Cut(r.dir, apiwire.LimitErrorBytes)}
	if position > 0 && r.state != wire.RunSummary_STOPPING {
		s.State = wire.RunSummary_QUEUED
	}
	if !r.ended.IsZero() {
		s.EndedNs = r.ended.UnixNano()
	}
	if r.err != nil {
		s.Error = words.Cut(r.err.Error(), apiwire.LimitErrorBytes)
	} else if r.ended.IsZero() {
		s.Waiting = words.Cut(r.waiting.String(), apiwire.LimitErrorBytes)
	}
	return s
}

// ids returns the run's names in logs: its short id and its UUID.
func (r *run) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []string{r.id, r.uuid.String()}
}

func (r *run) workerNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers
}

// lastStep returns the last completed step.
func (r *run) lastStep() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// detach marks a run whose attempts have ended as one that has not begun, so that the next attempt gets its requests. It
// returns false if the run was told to stop.
func (r *run) detach() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked {
		return false
	}
	r.requested = r.inner.Requests()
	r.inner, r.want = nil, max(1, len(r.workers))
	return true
}
