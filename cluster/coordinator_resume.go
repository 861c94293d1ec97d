package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// workerError is a worker's, which can't compute its ranks. Only its text comes over the network.
type workerError struct{ worker, text string }

func (e *workerError) Error() string { return "worker " + e.worker + ": " + e.text }

// mayPass says whether an error with which a run has ended may pass without anybody changing anything: an error of the
// system, data that are not mounted, too few workers, or one that can't compute now. The run is resumed then.
func mayPass(err error) bool {
	var refused *workerError
	return errors.As(err, &refused) || checkpoint.MayPass(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, troupe.ErrNoWorkers) ||
		errors.Is(err, ErrTryAgain)
}

// drops says whether a run that had not begun when the coordinator was started is dropped, since it can't begin: the
// client that submitted it would have been told, and nothing is lost.
func drops(was journal.State, err error) bool {
	var setup *troupe.SetupError
	return was == journal.Submitted && errors.As(err, &setup) && !mayPass(err)
}

// optionsOf are those by which a run of the journal begins, or is resumed.
func optionsOf(e journal.Entry) troupe.Options {
	o := troupe.Options{AcceptNewData: e.AcceptNewData, Requests: e.Requests}
	if e.State != journal.Begun { // given again, a step that was obeyed changes nothing
		o.FromStep = e.FromStep
	}
	o.Fresh = e.Fresh && e.State == journal.Submitted
	return o
}

// takeUp resumes a run that another coordinator had, or begins it, as soon as there are workers.
func (r *run) takeUp(begin func() error, was journal.State) error {
	had := "had"
	if was == journal.Submitted {
		had = "has ranks for"
	}
	r.mu.Lock()
	r.state = wire.RunSummary_WAITING
	r.waitFor(waiting{text: fmt.Sprintf("the coordinator was started again; the run waits for workers: it %s %d", had, r.want)})
	r.mu.Unlock()
	return r.tryAgain(begin, func(err error) bool { return drops(was, err) }, refollowFirst)
}

// tryAgain begins an attempt at the run, again and again with growing pauses, until one has begun, the run is told to end,
// or an error is final. Only what waits for workers alone keeps a short pause.
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

// pauseFor waits before the next try, and shows why.
func (r *run) pauseFor(why error, pause time.Duration) {
	r.c.log.Warn("can't resume a run yet", "run", r.id, "err", why, "again_s", pause.Seconds())
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

// keepOn watches a run that has begun to its end. One that has failed for a reason that may pass is resumed from its last
// checkpoint; the pause before that grows unless it has trained since.
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
		if err != nil { // it was told to end
			res.Stopped = true
			return res, nil
		}
		s.c.log.Info("a run is resumed", "run", r.id, "uuid", r.ids()[1], "name", r.name, "step", r.lastStep(), "workers",
			strings.Join(r.workerNames(), " "))
	}
}

// takeUp goes on with the runs of the journal.
func (s *runs) takeUp() {
	if s.journal == nil {
		return
	}
	for _, e := range slices.Clone(s.journal.Entries()) {
		cfg, err := config.ParseStored("the run's stored configuration", []byte(e.Config))
		if err == nil {
			err = moveTo(cfg, e.Folder)
		}
		unusable := err // which an operator has to see, and to decide about
		if cfg == nil {
			cfg = new(config.Config)
		}
		r := s.newRun(cfg, e)
		r.want, r.asked = max(1, e.Workers), e.Stopping
		if e.Workers == 0 { // it had none yet
			r.want = max(1, cfg.Ranks())
		}
		if aerr := s.add(r); aerr != nil {
			s.c.log.Error("can't take a run up", "run", e.ID, "err", aerr)
			continue
		}
		go func() { // ends with the run, which ends with Shutdown at the latest
			defer s.running.Done()
			res := troupe.Result{Stopped: true}
			var err error
			begin := func() error {
				if unusable != nil {
					return unusable
				}
				return s.begin(r)
			}
			switch {
			case e.Stopping: // it was told to end before the other coordinator died
			default:
				if err = r.takeUp(begin, e.State); err == nil {
					s.c.log.Info("a run goes on", "run", r.id, "uuid", r.ids()[1], "name", r.name, "step", r.summary().GetStep(), "workers",
						strings.Join(r.workerNames(), " "))
					res, err = s.keepOn(r)
				} else if r.ctx.Err() != nil {
					err = nil // it was told to end before it began
				} else if e.State != journal.Begun {
					s.c.log.Warn("dropped a run that had not begun when the coordinator ended, and can't begin", "run", r.id, "name", r.name, "state",
						string(e.State), "err", err)
				}
			}
			s.ended(r, res, err)
		}()
	}
}

// moveTo makes a configuration's paths those of a folder, unless this process is there.
func moveTo(cfg *config.Config, folder string) error {
	here, err := os.Getwd()
	if err != nil || here == folder {
		return err
	}
	cfg.MoveTo(folder)
	return nil
}
