package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/journal"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
)

// Submission is a request for a run.
type Submission struct {
	Config        []byte   // TOML text
	File          string   // the config's file name, for messages
	Sets          []string // section.key=value
	Fresh         bool     // see troupe.Options
	FromStep      int      // see troupe.Options
	AcceptNewData bool     // see troupe.Options
	Name          string   // the run's name; "": run.name of the config
	// Queue makes the run wait in the coordinator's queue if there are not enough workers for it, instead of being refused.
	Queue bool
	// Notice gets what the run waits for before it begins. It may be nil.
	Notice func(text string)

	// begins is called with the run before it begins, which may take long. It may be nil.
	begins     func(*run)
	registered []string          // names that the client's program has registered
	variables  map[string]string // the client's environment variables that the config names
}

// submit begins a run and returns when it has begun or is in the queue. If ctx ends earlier, the run stops. Paths in the config are on this
// process's host. Environment variables are the client's, except those in Submissions.Env.
func (s *runs) submit(ctx context.Context, o Submission, by string) (*run, error) {
	if o.File == "" {
		o.File = "config.toml"
	}
	cfg, err := s.c.parse(o.File, o.Config, o.Sets, o.registered, o.variables)
	if err != nil {
		return nil, err
	}
	if err := s.c.lease(cfg); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = cfg.Run.Name
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	r := s.newRun(cfg, journal.Entry{State: journal.Submitted, Fresh: o.Fresh, FromStep: o.FromStep, Name: words.Cut(o.Name, limitNameBytes),
		By: by, Folder: here, Config: string(cfg.TOML()), AcceptNewData: o.AcceptNewData, Submitted: clock.Now().UTC().Format(time.RFC3339)})
	if err := s.add(r); err != nil {
		return nil, err
	}
	if o.begins != nil {
		o.begins(r)
	}
	stop := context.AfterFunc(ctx, r.cancel)
	err = s.note(r, func(*journal.Entry) {}) // from here on a restarted coordinator begins the run
	if err == nil {
		s.c.cfg.at(pointSubmitted)
		if err = s.behindQueue(); err == nil {
			err = s.begin(r)
		}
	}
	stop()
	if errors.Is(err, plan.ErrNoRoom) && ctx.Err() == nil {
		if err = s.refusedOrQueued(r, o.Queue, err); err == nil {
			return r, nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.forget(r))
	}
	s.c.log.Info("run started", "run", r.id, "uuid", r.ids()[1], "name", r.name, "by", by, "workers", strings.Join(r.workerNames(), " "),
		"out", cfg.Run.Out)
	go func() { // ends with the run
		defer s.running.Done()
		res, err := s.keepOn(r)
		s.ended(r, res, err)
	}()
	return r, nil
}

// begin begins or resumes a run, and writes that to the journal.
func (s *runs) begin(r *run) error {
	s.mu.Lock()
	o := optionsOf(r.entry)
	s.mu.Unlock()
	if err := r.start(o); err != nil {
		return err
	}
	s.c.cfg.at(pointStarted)
	err := s.note(r, func(e *journal.Entry) { e.State, e.Workers = journal.Begun, len(r.workerNames()) })
	if err != nil {
		r.inner.Kill() // to a restarted coordinator it would look like a run that has not begun
		_, _ = r.watch()
		if !r.detach() { // it was told to stop meanwhile
			r.cancel()
		}
		return err
	}
	s.c.cfg.at(pointBegun)
	return nil
}

// Points of a run's start at which a test kills the coordinator.
const (
	pointSubmitted = "submitted" // it is in the journal
	pointPlaced    = "placed"    // its workers have their ranks, and its folder is not written to yet
	pointStarted   = "started"   // its stages compute, which is not in the journal
	pointBegun     = "begun"     // that is in the journal too
)

// forget drops a run that could not begin. The client gets the reason from submit.
func (s *runs) forget(r *run) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *run) bool { return other == r })
	if s.journal != nil {
		if err = s.journal.Remove(r.id); err != nil {
			err = fmt.Errorf("can't remove run %s from the journal; a restarted coordinator will try to begin it: %w", r.id, err)
		}
	}
	r.cancel()
	s.running.Done()
	return err
}
