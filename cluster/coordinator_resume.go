package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// workerError is the error of a worker that can't compute its ranks. Only its text crosses the network.
type workerError struct {
	worker, text string
	crowded      bool // its ranks fit its memory, but not with the shadows of others
}

func (e *workerError) Error() string { return "worker " + e.worker + ": " + e.text }

// mayPass reports whether an error that ended a run may go away without a change: an error of the system, a folder that
// is not mounted, too few workers, or a worker that can't compute now. The coordinator then resumes the run.
func mayPass(err error) bool {
	var refused *workerError
	return errors.As(err, &refused) || checkpoint.MayPass(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, troupe.ErrNoWorkers) ||
		errors.Is(err, ErrTryAgain)
}

// drops reports whether a run of the journal that had not begun, and can't begin, is dropped. Nothing is lost: the
// client that submitted it would have got the same error.
func drops(was journal.State, err error) bool {
	var setup *troupe.SetupError
	return was == journal.Submitted && errors.As(err, &setup) && !mayPass(err)
}

// optionsOf returns the options with which a run of the journal begins or resumes.
func optionsOf(e journal.Entry) troupe.Options {
	o := troupe.Options{AcceptNewData: e.AcceptNewData, Requests: e.Requests}
	if e.State != journal.Begun { // in a run that has begun, FromStep has taken effect
		o.FromStep = e.FromStep
	}
	o.Fresh = e.Fresh && e.Untouched()
	return o
}

// takeUp resumes a run of the previous coordinator, or begins it, as soon as there are workers.
func (r *run) takeUp(begin func() error, was journal.State) error {
	had := "it had"
	if was == journal.Submitted {
		had = "its ranks can use"
	}
	r.mu.Lock()
	r.state = wire.RunSummary_WAITING
	r.waitFor(waiting{text: fmt.Sprintf("the coordinator has restarted; the run waits for workers: %s %d", had, r.want)})
	r.mu.Unlock()
	return r.tryAgain(begin, func(err error) bool { return drops(was, err) }, refollowFirst)
}

// tryAgain starts attempts with growing pauses until one has begun, the run is told to stop, or an error is final. The
// pause stays short while the run only waits for workers.
func (r *run) tryAgain(begin func() error, final func(error) bool, pause time.Duration) error {
	for {
		err := begin()
		if err == nil || r.ctx.Err() != nil || final(err) {
			return err
		}
		var lost *plan.LostError
		most := resumeMost
		if errors.As(err, &lost) || errors.Is(err, troupe.ErrNoWorkers) {
			most = refollowMost
		}
		pause = min(pause, most)
		r.pauseFor(err, pause)
		pause *= 2
	}
}

// pauseFor waits before the next try, and shows the reason.
func (r *run) pauseFor(why error, pause time.Duration) {
	r.c.log.Warn("can't resume a run yet", "run", r.id, "err", why, "next_try_s", pause.Seconds())
	r.mu.Lock()
	if r.state != wire.RunSummary_STOPPING {
		r.state = wire.RunSummary_WAITING
	}
	r.waitFor(waiting{why.Error(), time.Now().Add(pause)})
	r.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.ctx.Done():
	}
}

// keepOn watches a run until its end. If the run fails for a reason that may go away (mayPass), keepOn resumes it from
// its last checkpoint. The pause before that grows unless the run has completed a step since.
func (s *runs) keepOn(r *run) (troupe.Result, error) {
	pause := refollowFirst
	for {
		from := r.lastStep()
		res, err := r.watch()
		if err == nil || !mayPass(err) || r.ctx.Err() != nil || !r.detach() {
			return res, err
		}
		if r.lastStep() > from {
			pause = refollowFirst
		}
		pause = min(2*pause, resumeMost)
		r.pauseFor(err, pause)
		err = r.ctx.Err()
		if err == nil {
			err = r.tryAgain(func() error { return s.begin(r) }, func(error) bool { return false }, pause)
		}
		if err != nil { // it was told to stop
			res.Stopped = true
			return res, nil
		}
		s.c.log.Info("run resumed", "run", r.id, "uuid", r.ids()[1], "name", r.name, "step", r.lastStep(), "workers",
			strings.Join(r.workerNames(), " "))
	}
}

// takeUp resumes the runs of the journal.
func (s *runs) takeUp() {
	if s.journal == nil {
		return
	}
	s.listEnded()
	for _, e := range slices.Clone(s.journal.Entries()) {
		cfg, err := config.ParseStored("the run's stored configuration", []byte(e.Config))
		if err == nil {
			err = moveTo(cfg, e.Folder)
		}
		unusable := err // an operator has to see it and decide
		if cfg == nil {
			cfg = new(config.Config)
		}
		r := s.newRun(cfg, e)
		r.want, r.asked = max(1, e.Workers), e.Stopping
		if e.Workers == 0 { // it had no workers yet
			r.want = max(1, cfg.Ranks())
		}
		if r.queued = e.State == journal.Queued && !e.Stopping; r.queued {
			r.want = 0 // it begins with any workers, as it would have before
		}
		if aerr := s.add(r); aerr != nil {
			s.c.log.Error("can't resume a run", "run", e.ID, "err", aerr)
			continue
		}
		tried := func() {}
		if e.State != journal.Queued && !e.Stopping {
			tried = sync.OnceFunc(s.c.waits()) // so that it chooses workers before the queue does
		}
		go func() { // ends with the run, which ends with Shutdown at the latest
			defer s.running.Done()
			res := troupe.Result{Stopped: true}
			var err error
			begin := func() error {
				defer tried()
				if unusable != nil {
					return unusable
				}
				return s.begin(r)
			}
			start := func() error { return r.takeUp(begin, e.State) }
			if e.State == journal.Queued {
				start = func() error { return s.waitInQueue(r, begin) }
			}
			switch {
			case e.Stopping: // it was told to stop before the previous coordinator ended
			default:
				if err = start(); err == nil {
					s.c.log.Info("run resumed", "run", r.id, "uuid", r.ids()[1], "name", r.name, "step", r.summary().GetStep(), "workers",
						strings.Join(r.workerNames(), " "))
					res, err = s.keepOn(r)
				} else if r.ctx.Err() != nil {
					err = nil // it was told to stop before it began
				} else if e.State != journal.Begun && e.State != journal.Queued {
					s.c.log.Warn("dropped a run that had not begun when the coordinator ended and can't begin now", "run", r.id, "name", r.name, "state",
						string(e.State), "err", err)
				}
			}
			s.ended(r, res, err)
		}()
	}
}

// moveTo makes a config's paths relative to a folder, unless it is this process's working directory.
func moveTo(cfg *config.Config, folder string) error {
	here, err := os.Getwd()
	if err != nil || here == folder {
		return err
	}
	cfg.MoveTo(folder)
	return nil
}
