package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// runIDBytes is the length of a run's id, before it is written in hexadecimal digits.
const runIDBytes = 4

func isRunID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == runIDBytes && strings.ToLower(id) == id
}

// runs are those that a coordinator was asked for, in progress and ended.
type runs struct {
	c       *Coordinator
	running sync.WaitGroup // of runs in progress

	mu      sync.Mutex
	journal *journal // nil: nothing is kept
	all     []*run   // in the order in which they were asked for
	closing bool
}

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
	r := s.newRun(cfg, entry{State: submitted, Fresh: o.Fresh, FromStep: o.FromStep, Name: clean(o.Name, limitNameBytes), By: by, Folder: here, Config: string(cfg.TOML()), AcceptNewData: o.AcceptNewData, Submitted: clock.Now().UTC().Format(time.RFC3339)})
	if err := s.add(r); err != nil {
		return nil, err
	}
	if o.begins != nil {
		o.begins(r)
	}
	stop := context.AfterFunc(ctx, r.cancel)
	err = s.note(r, func(*entry) {}) // a coordinator that dies from here on takes it up when it is started again
	if err == nil {
		s.c.cfg.at(pointSubmitted)
		err = s.begin(r)
	}
	stop()
	if err != nil {
		return nil, errors.Join(err, s.forget(r))
	}
	s.c.log.Info("a run has begun", "run", r.id, "uuid", r.ids()[1], "name", r.name, "by", by, "workers", strings.Join(r.workerNames(), " "), "out", cfg.Run.Out)
	go func() { // ends with the run
		defer s.running.Done()
		res, err := s.keepOn(r)
		s.ended(r, res, err)
	}()
	return r, nil
}

func (s *runs) newRun(cfg *config.Config, e entry) *run {
	r := &run{c: s.c, entry: e, id: e.ID, name: e.Name, by: e.By, cfg: cfg, done: make(chan struct{}), followers: make(map[*follower]struct{})}
	r.requested = slices.Clone(e.Requests)
	for _, c := range e.Requests {
		if c.Kind == event.ChangeStop {
			r.stops = append(r.stops, c.Step)
		}
	}
	r.submitted, _ = time.Parse(time.RFC3339, e.Submitted) // which is its own, or was looked at
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
	case busy >= limitRuns:
		return fmt.Errorf("%w: %d runs are in progress, and there may be no more", ErrRequest, busy)
	}
	for r.id == "" || s.byID(r.id) {
		var id [runIDBytes]byte
		_, _ = rand.Read(id[:]) // never fails, as its documentation says
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

// begin begins a run, or goes on with it, and notes that.
func (s *runs) begin(r *run) error {
	s.mu.Lock()
	o := r.entry.options()
	s.mu.Unlock()
	if err := r.start(o); err != nil {
		return err
	}
	s.c.cfg.at(pointStarted)
	err := s.note(r, func(e *entry) { e.State, e.Workers = begun, len(r.workerNames()) })
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
		if err = s.journal.remove(r.id); err != nil {
			err = fmt.Errorf("run %s stays noted, and a coordinator that is started again tries to begin it: %w", r.id, err)
		}
	}
	r.cancel()
	s.running.Done()
	return err
}

// note changes what the journal has of a run.
func (s *runs) note(r *run, change func(*entry)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&r.entry)
	if s.journal == nil || r.forgotten {
		return nil
	}
	return s.journal.put(r.entry)
}

// keep notes what was asked of a run and is not done yet. That it is to stop now is noted apart, since a
// coordinator that ends stops its runs, too.
func (s *runs) keep(r *run) error {
	return s.note(r, func(e *entry) { // which has mu: what is asked meanwhile is not lost by an older list
		e.Requests = slices.DeleteFunc(r.requests(), func(c troupe.Change) bool { return c.Kind == event.ChangeStop && c.Step == 0 })
	})
}

// ended notes that a run has ended. One that ends with the coordinator stays in the journal.
func (s *runs) ended(r *run, res troupe.Result, err error) {
	r.mu.Lock()
	asked := r.asked || slices.Contains(r.stops, int64(res.Step))
	r.mu.Unlock()
	s.mu.Lock()
	interrupted := s.closing && !asked && (res.Stopped || err != nil)
	r.forgotten = true
	if s.journal != nil && !interrupted {
		if jerr := s.journal.remove(r.id); jerr != nil {
			s.c.log.Error("a run that has ended stays noted as one in progress", "run", r.id, "err", jerr)
		}
	}
	s.mu.Unlock()
	switch {
	case interrupted:
		s.c.log.Info("a run goes on when the coordinator is started again", "run", r.id, "step", res.Step, "checkpoint", res.Dir)
	case err != nil:
		s.c.log.Error("a run has failed", "run", r.id, "step", res.Step, "err", err)
	case res.Stopped:
		s.c.log.Info("a run was stopped", "run", r.id, "step", res.Step, "checkpoint", res.Dir)
	default:
		s.c.log.Info("a run is done", "run", r.id, "step", res.Step, "checkpoint", res.Dir)
	}
	r.end(res, err, interrupted)
	r.cancel()
	s.prune()
}

// prune bounds the history.
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

// takeUp goes on with the runs of the journal.
func (s *runs) takeUp() {
	if s.journal == nil {
		return
	}
	for _, e := range slices.Clone(s.journal.entries) {
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
					s.c.log.Info("a run goes on", "run", r.id, "uuid", r.ids()[1], "name", r.name, "step", r.summary().GetStep(), "workers", strings.Join(r.workerNames(), " "))
					res, err = s.keepOn(r)
				} else if r.ctx.Err() != nil {
					err = nil // it was told to end before it began
				} else if e.State != begun {
					s.c.log.Warn("dropped a run that had not begun when the coordinator ended, and can't begin", "run", r.id, "name", r.name, "state", string(e.State), "err", err)
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

func (r *run) workerNames() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers
}

// find is the run that an id, its beginning, or a name is of. Of several with one name it
// is the one in progress, else the last.
func (s *runs) find(text string) (*run, error) {
	if text == "" || len(text) > limitNameBytes {
		return nil, fmt.Errorf("%w: %.50q; give a run's id or its name", ErrNoRun, text)
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
		return nil, fmt.Errorf("%w: %q could be each of %s; give the whole id", ErrNoRun, text, strings.Join(ids, ", "))
	}
	return nil, fmt.Errorf("%w: %q; engine ps lists those that there are", ErrNoRun, text)
}

// list is every run, in the order in which they were asked for.
func (s *runs) list() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// control does what somebody asks of a run, and notes it for a coordinator that is started again.
// Where it can't be noted it is done all the same, and the warning says so: a full disk must not
// keep a run from being stopped.
func (s *runs) control(m *wire.ControlRequest, by string) (r *run, warning string, err error) {
	action := m.GetAction()
	if r, err = s.find(m.GetRun()); err != nil {
		return nil, "", err
	}
	if err := r.control(m); err != nil {
		return nil, "", err
	}
	s.c.log.Info("told a run to "+strings.ToLower(action.String()), "run", r.id, "at_step", m.GetStep(), "by", by)
	err = s.keep(r)
	if m.GetStep() == 0 && (action == wire.ControlRequest_STOP || action == wire.ControlRequest_KILL) {
		err = s.note(r, func(e *entry) { e.Stopping = true })
	}
	if err != nil {
		warning = fmt.Sprintf("run %s was told, but the coordinator could not note it, and would not know it when it is started again: %v", r.id, err)
		s.c.log.Error("a request is not noted", "run", r.id, "err", err)
	}
	return r, warning, nil
}

// stop ends all runs with a checkpoint, or without one when ctx ends. They go on with the
// next coordinator of the folder.
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

// ending reports whether the coordinator ends.
func (s *runs) ending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// close gives the folder back.
func (s *runs) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal == nil {
		return nil
	}
	err := errors.Join(s.journal.announce(""), s.journal.close())
	s.journal = nil
	return err
}

// Shutdown ends the coordinator in order: every run writes a checkpoint, unless ctx ends
// first, and goes on when a coordinator with the same folder is started.
func (c *Coordinator) Shutdown(ctx context.Context) {
	c.runs.stop(ctx)
	c.Close()
}
