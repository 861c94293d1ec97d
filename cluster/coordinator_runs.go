package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// runs are the submitted runs, in progress and ended.
type runs struct {
	c       *Coordinator
	running sync.WaitGroup // of runs in progress

	restarts atomic.Uint64 // of all runs, after a worker failed

	mu      sync.Mutex
	journal *journal.Journal // nil: the coordinator has no folder
	all     []*run           // in the order in which they were submitted
	closing bool
}

func (s *runs) newRun(cfg *config.Config, e journal.Entry) *run {
	r := &run{c: s.c, entry: e, id: e.ID, name: e.Name, by: e.By, cfg: cfg, done: make(chan struct{}), followers: make(map[*follower]struct{})}
	r.requested = slices.Clone(e.Requests)
	r.restarts, r.lost = e.Restarts, e.LostSteps
	for _, c := range e.Requests {
		if c.Kind == event.ChangeStop {
			r.stops = append(r.stops, c.Step)
		}
	}
	r.submitted, _ = time.Parse(time.RFC3339, e.Submitted) // it was formatted here, or the journal has checked it
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// add lists a run, and counts it as one in progress.
func (s *runs) add(r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := 0
	for _, other := range s.all {
		other.mu.Lock()
		if !other.over() {
			busy++
		}
		other.mu.Unlock()
	}
	switch {
	case s.closing:
		return ErrClosing
	case busy >= journal.LimitRuns:
		return fmt.Errorf("%w: %d runs are in progress, the limit", ErrRequest, busy)
	}
	for r.id == "" || s.byID(r.id) {
		var id [journal.RunIDBytes]byte
		_, _ = rand.Read(id[:]) // its documentation says that it never fails
		r.id = hex.EncodeToString(id[:])
	}
	r.entry.ID = r.id
	s.all = append(s.all, r)
	s.running.Add(1)
	return nil
}

func (s *runs) byID(id string) bool {
	return slices.ContainsFunc(s.all, func(r *run) bool { return r.id == id })
}

// note changes a run's entry in the journal.
func (s *runs) note(r *run, change func(*journal.Entry)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&r.entry)
	if s.journal == nil || r.forgotten {
		return nil
	}
	return s.journal.Put(r.entry)
}

// keep writes a run's pending requests, restarts and lost steps to the journal. A request to stop now is stored separately, because a
// coordinator that ends stops its runs too.
func (s *runs) keep(r *run) error {
	return s.note(r, func(e *journal.Entry) { // under mu, so that no older list overwrites a newer one
		e.Requests = slices.DeleteFunc(r.requests(), func(c troupe.Change) bool { return c.Kind == event.ChangeStop && c.Step == 0 })
		e.Restarts, e.LostSteps = r.repeated()
	})
}

// ended handles a run's end. A run that ends because the coordinator does stays in the journal.
func (s *runs) ended(r *run, res troupe.Result, err error) {
	r.mu.Lock()
	asked := r.asked || slices.Contains(r.stops, int64(res.Step))
	r.mu.Unlock()
	s.mu.Lock()
	interrupted := s.closing && !asked && (res.Stopped || err != nil)
	r.forgotten = true
	if s.journal != nil && !interrupted {
		if jerr := s.journal.AddEnded(r.asEnded(res, err)); jerr != nil { // first: a run may be in both lists, but not in none
			s.c.log.Error("can't write an ended run to the journal; a restarted coordinator won't list it", "run", r.id, "err", jerr)
		}
		if jerr := s.journal.Remove(r.id); jerr != nil {
			s.c.log.Error("can't remove an ended run from the journal; a restarted coordinator will resume it", "run", r.id, "err", jerr)
		}
	}
	s.mu.Unlock()
	switch {
	case interrupted:
		s.c.log.Info("run interrupted; it resumes when the coordinator restarts", "run", r.id, "step", res.Step, "checkpoint", res.Dir)
	case err != nil:
		s.c.log.Error("run failed", "run", r.id, "step", res.Step, "err", err)
	case res.Stopped:
		s.c.log.Info("run stopped", "run", r.id, "step", res.Step, "checkpoint", res.Dir)
	default:
		s.c.log.Info("run finished", "run", r.id, "step", res.Step, "checkpoint", res.Dir)
	}
	r.end(res, err, interrupted)
	r.cancel()
	s.prune()
}

// prune bounds the number of ended runs that are listed.
func (s *runs) prune() {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := 0
	for _, r := range slices.Backward(s.all) {
		r.mu.Lock()
		if r.over() {
			over++
		}
		r.mu.Unlock()
	}
	s.all = slices.DeleteFunc(s.all, func(r *run) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if over > limitHistory && r.over() {
			over--
			return true
		}
		return false
	})
}

// find returns the run with an id, a prefix of an id, or a name. If several runs have the name, it
// returns the one in progress, or else the last.
func (s *runs) find(text string) (*run, error) {
	if text == "" || len(text) > limitNameBytes {
		return nil, fmt.Errorf("%w: %.50q; give a run's id or name", ErrNoRun, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var byID, byName, going []*run
	for _, r := range s.all {
		if strings.HasPrefix(r.id, text) {
			byID = append(byID, r)
		}
		if r.name == text {
			byName = append(byName, r)
			r.mu.Lock()
			if !r.over() {
				going = append(going, r)
			}
			r.mu.Unlock()
		}
	}
	switch {
	case len(going) == 1:
		return going[0], nil
	case len(going) > 1:
		byID = going
	case len(byID) == 1:
		return byID[0], nil
	case len(byID) == 0 && len(byName) > 0:
		return byName[len(byName)-1], nil
	}
	if len(byID) > 1 {
		var ids []string
		for _, r := range byID {
			ids = append(ids, r.id)
		}
		return nil, fmt.Errorf("%w: %q matches several runs: %s; give the whole id", ErrNoRun, text, strings.Join(ids, ", "))
	}
	return nil, fmt.Errorf("%w: %q; engine ps lists the runs", ErrNoRun, text)
}

// shortIDs returns the runs' ids by their UUIDs, which their files and the logs of their actors have.
func (s *runs) shortIDs() map[string]string {
	short := make(map[string]string)
	for _, r := range s.list() {
		ids := r.ids()
		short[ids[1]] = ids[0]
	}
	delete(short, uuid.Nil.String()) // of runs that have not begun
	return short
}

// list returns all runs in the order in which they were submitted.
func (s *runs) list() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// stop stops all runs with a checkpoint, or without one when ctx ends. They resume with the next
// coordinator of the folder.
func (s *runs) stop(ctx context.Context) {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	for _, r := range s.list() {
		r.cancel()
	}
	ended := make(chan struct{})
	go func() { // ends with the runs
		s.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		for _, r := range s.list() {
			r.kill()
		}
		<-ended
	}
}

// ending reports whether the coordinator is stopping.
func (s *runs) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// close closes the journal and releases the folder.
func (s *runs) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return nil
	}
	err := errors.Join(s.journal.Announce(""), s.journal.Close())
	s.journal = nil
	return err
}
