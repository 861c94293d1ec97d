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
)

// Submission asks a coordinator for a run.
type Submission struct {
	Config        []byte   // TOML text
	File          string   // its name, for messages
	Sets          []string // section.key=value
	Fresh         bool
	FromStep      int
	AcceptNewData bool
	Name          string // of the run; "": the configuration's
	// Notice is told what the run waits for before it has begun; nil: nobody is.
	Notice func(text string)

	// begins is told of the run before it begins, which may take long; nil: nobody is.
	begins     func(*run)
	registered []string          // what the client's program has registered
	variables  map[string]string // of its environment: those that the configuration names
}

// submit begins a run, and returns when it has begun. When ctx ends before, so does the run.
// Paths in the configuration are this process's; environment variables are the client's, but for those that Submissions names.
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
	err = s.note(r, func(*journal.Entry) {}) // a coordinator that dies from here on takes it up when it is started again
	if err == nil {
		s.c.cfg.at(pointSubmitted)
		err = s.begin(r)
	}
	stop()
	if err != nil {
		return nil, errors.Join(err, s.forget(r))
	}
	s.c.log.Info("a run has begun", "run", r.id, "uuid", r.ids()[1], "name", r.name, "by", by, "workers", strings.Join(r.workerNames(), " "),
		"out", cfg.Run.Out)
	go func() { // ends with the run
		defer s.running.Done()
		res, err := s.keepOn(r)
		s.ended(r, res, err)
	}()
	return r, nil
}

// begin begins a run, or goes on with it, and notes that.
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
		r.inner.Kill() // a coordinator that is started again would take it for one that has not begun
		_, _ = r.watch()
		if !r.detach() { // it was told to end meanwhile
			r.cancel()
		}
		return err
	}
	s.c.cfg.at(pointBegun)
	return nil
}

// Points of a run's beginning at which a test lets the coordinator die.
const (
	pointSubmitted = "submitted" // it is noted
	pointPlaced    = "placed"    // its workers have their ranks, and its folder is about to be written to
	pointStarted   = "started"   // its stages compute, of which nothing is noted
	pointBegun     = "begun"     // that is noted
)

// forget drops a run that has not come to begin: whoever asked for it is told why.
func (s *runs) forget(r *run) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *run) bool { return other == r })
	if s.journal != nil {
		if err = s.journal.Remove(r.id); err != nil {
			err = fmt.Errorf("run %s stays noted, and a coordinator that is started again tries to begin it: %w", r.id, err)
		}
	}
	r.cancel()
	s.running.Done()
	return err
}
