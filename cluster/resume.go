package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
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
	return errors.As(err, &refused) || checkpoint.MayPass(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, troupe.ErrNoWorkers) || errors.Is(err, ErrTryAgain)
}

// drops says whether a run that had not begun when the coordinator was started is dropped, since it can't begin: the
// client that submitted it would have been told, and nothing is lost.
func drops(was progress, err error) bool {
	var setup *troupe.SetupError
	return was == submitted && errors.As(err, &setup) && !mayPass(err)
}

// takeUp resumes a run that another coordinator had, or begins it, as soon as there are workers.
func (r *run) takeUp(begin func() error, was progress) error {
	had := "had"
	if was == submitted {
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
		s.c.log.Info("a run is resumed", "run", r.id, "uuid", r.ids()[1], "name", r.name, "step", r.lastStep(), "workers", strings.Join(r.workerNames(), " "))
	}
}

// lastStep is the last step that has ended.
func (r *run) lastStep() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.step
}

// detach makes a run whose attempts have ended one that has not begun, so that what is asked of it is kept for the next
// one; false: it was told to end.
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
