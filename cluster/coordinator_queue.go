package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// The queue contains the submitted runs that wait until there are enough workers for them (Submission.Queue). They begin
// in the order of their submission: only the first one chooses workers. Runs that have begun and wait for workers again
// come before the queue, and submissions that do not wait are refused while there is a queue.

// queue returns the runs in the queue, in order.
func (s *runs) queue() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queueLocked()
}

// queueLocked is queue. mu is held.
func (s *runs) queueLocked() (queue []*run) {
	for _, r := range s.all {
		if r.queued {
			queue = append(queue, r)
		}
	}
	return queue
}

// position returns a run's position in the queue, from 1; 0: it is not in the queue.
func (s *runs) position(r *run) int { return 1 + slices.Index(s.queue(), r) }

// behindQueue refuses a submission while runs wait in the queue: it must not overtake them.
func (s *runs) behindQueue() error {
	if n := len(s.queue()); n > 0 {
		return fmt.Errorf("%w: the queue already has %s", plan.ErrNoRoom, words.Plural(n, "run"))
	}
	return nil
}

// refuseQueued refuses a request to a run in the queue, except a stop. The run could answer only after it has begun, and a
// paused run would hold workers for which others wait.
func (s *runs) refuseQueued(r *run, action wire.ControlRequest_Action) error {
	if action == wire.ControlRequest_STOP || action == wire.ControlRequest_KILL {
		return nil
	}
	n := s.position(r)
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%w: run %s waits in the queue at position %d: engine stop %s removes it; repeat the request when the run has begun",
		ErrRequest, r.id, n, r.id)
}

// refusedOrQueued handles a submission for which there are not enough workers. With queue it puts the run into the queue
// and returns nil.
func (s *runs) refusedOrQueued(r *run, queue bool, why error) error {
	if !queue {
		return fmt.Errorf("%w; to wait for workers in the coordinator's queue, use --queue", why)
	}
	s.mu.Lock()
	if n := len(s.queueLocked()); n >= limitQueue {
		s.mu.Unlock()
		return fmt.Errorf("%w; the queue is full: it has %d runs, the limit", why, n)
	}
	r.queued = true
	s.mu.Unlock()
	if err := s.note(r, func(e *journal.Entry) { e.State, e.Workers = journal.Queued, 0 }); err != nil {
		s.leaveQueue(r)
		return err
	}
	s.c.log.Info("run queued", "run", r.id, "name", r.name, "by", r.by, "position", s.position(r), "why", why)
	go func() { // ends with the run
		defer s.running.Done()
		res := troupe.Result{Stopped: true}
		err := s.waitInQueue(r, func() error { return s.begin(r) })
		switch {
		case err == nil:
			s.c.log.Info("run started", "run", r.id, "uuid", r.ids()[1], "name", r.name, "by", r.by, "workers",
				strings.Join(r.workerNames(), " "), "out", r.cfg.Run.Out)
			res, err = s.keepOn(r)
		case r.ctx.Err() != nil: // it was told to stop
			err = nil
		}
		s.ended(r, res, err)
	}()
	return nil
}

// leaveQueue takes a run out of the queue, and wakes those after it.
func (s *runs) leaveQueue(r *run) {
	s.mu.Lock()
	r.queued = false
	s.mu.Unlock()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.tell()
}

// waitInQueue waits until the run is the first in the queue and there are workers for it, and begins it. Its error is
// final, or the run was told to stop.
func (s *runs) waitInQueue(r *run, begin func() error) error {
	defer s.leaveQueue(r)
	retry := time.NewTimer(queueRetry)
	defer retry.Stop()
	var tried map[uuid.UUID]bool // workers with which it could not begin; nil: it has not tried
	why := ""
	for said := ""; ; {
		free, others, changed := s.c.freeNow()
		queue := s.queue()
		position := 1 + slices.Index(queue, r)
		var text string
		switch {
		case position > 1:
			text = fmt.Sprintf("run %s (%s) is first", queue[0].id, queue[0].name)
		case others > 0:
			text = "a run that has begun waits for workers, and comes before the queue"
		case tried == nil || anyNew(free, tried):
			err := begin()
			if err == nil || r.ctx.Err() != nil || !errors.Is(err, plan.ErrNoRoom) && !plan.IsLost(err) {
				return err
			}
			tried, why, text = free, err.Error(), err.Error()
			retry.Reset(queueRetry)
		default:
			text = why
		}
		text = fmt.Sprintf("queued at position %d of %d: %s", position, len(queue), text)
		if text != said {
			said = text
			r.waits(text)
		}
		select {
		case <-changed:
		case <-retry.C:
			tried = nil
			retry.Reset(queueRetry)
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

func anyNew(free, tried map[uuid.UUID]bool) bool {
	for id := range free {
		if !tried[id] {
			return true
		}
	}
	return false
}

// freeNow returns the free workers, the number of runs outside the queue that choose workers, and a channel that is
// closed at the next change.
func (c *Coordinator) freeNow() (free map[uuid.UUID]bool, others int, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	free = make(map[uuid.UUID]bool)
	for _, w := range (&hosts{Coordinator: c}).free() {
		free[w.ID] = true
	}
	return free, c.waiting, c.changed
}

// waits counts a run outside the queue that chooses workers, until the returned function is called.
func (c *Coordinator) waits() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting--
		c.tell()
	}
}
