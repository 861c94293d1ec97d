package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/ui"
)

// usual holds the defaults of the configuration.
const usual = `
[run]
steps = 200
eval_every = 50
eval_batches = 2
checkpoint_every = 100

[model]
layers = 2
hidden = 64
heads = 4
context = 64

[batch]
sequences = 8
microbatch = 2

[optimizer]
lr = 0.003

[pipeline]
stages = 2
`

// runs holds the runs of the service.
type runs struct {
	dir    string
	most   int // limit of runs that train at the same time
	system *actor.ActorSystem
	log    *slog.Logger
	page   *ui.Server // shows the runs in a browser

	mu     sync.Mutex
	all    []*run // in the order of their start
	active int    // runs that train or are starting
	closed bool
}

// run is a run in its own folder.
type run struct {
	*troupe.Run
	id     string
	events *eventLog
}

var (
	errBad    = errors.New("bad request")
	errBusy   = errors.New("too many active runs")
	errClosed = errors.New("the service is shutting down")
)

func openRuns(dir string, most int, system *actor.ActorSystem, log *slog.Logger) (*runs, error) {
	dir, err := filepath.Abs(dir) // absolute, because configurations contain the path
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	// On loopback all users of this machine may look. Control is for the API only, so the page gets no token.
	page, err := ui.New(ui.Options{Logger: log})
	return &runs{dir: dir, most: most, system: system, log: log, page: page}, err
}

// begin starts a run on a text. sets are configuration keys with values.
func (s *runs) begin(text []byte, sets []string) (*run, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	leave := sync.OnceFunc(s.leave)
	r, err := s.start(text, sets, leave)
	if err != nil {
		leave()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r)
	if s.closed { // the service was closed meanwhile
		r.Stop()
	}
	return r, nil
}

// enter reserves a slot for a new run.
func (s *runs) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosed
	case s.active >= s.most:
		return fmt.Errorf("%w: %d runs train, which is the limit; stop one or wait", errBusy, s.active)
	}
	if i := slices.IndexFunc(s.all, func(r *run) bool { return r.events.ended() }); i >= 0 && len(s.all) >= limitRuns {
		s.page.Detach(s.all[i].id)
		s.all = slices.Delete(s.all, i, i+1)
	}
	s.active++
	return nil
}

func (s *runs) start(text []byte, sets []string, leave func()) (r *run, err error) {
	folder, err := os.MkdirTemp(s.dir, "run-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}()
	r = &run{id: filepath.Base(folder), events: newEventLog()}
	file := filepath.Join(folder, "text")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	// A JSON string is a TOML string.
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) } // a string can always be marshaled
	sets = append(sets, "run.name="+quoted(r.id), "run.out="+quoted(filepath.Join(folder, "run")), "data.train=["+quoted(file)+"]")
	cfg, err := config.Parse("service", []byte(usual), sets, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	if cfg.HasOwnTable() {
		return nil, fmt.Errorf("%w: pipeline.schedule must not be a file in this service", errBad)
	}
	// The service's own actor starts before the run, so that it gets all events.
	watcher, err := s.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &recorder{events: r.events, ended: leave} }),
		"recorder-"+r.id)
	if err != nil {
		return nil, err
	}
	// The run does not use the request's context: it continues after the request and ends with Stop.
	r.Run, err = troupe.Start(context.Background(), cfg, troupe.Options{System: s.system, Logger: s.log.With("folder", r.id),
		Watchers: []*actor.PID{watcher}})
	if err != nil {
		s.system.Root.Stop(watcher)
		return nil, err
	}
	if err := s.page.Attach(r.id, r.Run); err != nil { // the service is shutting down
		s.log.Warn("the page does not show the run", "folder", r.id, "err", err)
	}
	return r, nil
}

// leave frees the slot of a run.
func (s *runs) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
}

func (s *runs) find(id string) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.all, func(r *run) bool { return r.id == id }); i >= 0 {
		return s.all[i]
	}
	return nil
}

func (s *runs) list() []*run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// close stops every run with a checkpoint. It kills runs that take longer than grace; they keep their last
// checkpoint.
func (s *runs) close(grace time.Duration) error {
	s.mu.Lock()
	s.closed = true
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, r := range all {
		r.Stop()
	}
	late := time.AfterFunc(grace, func() { // stopped when all have ended
		for _, r := range all {
			r.Kill()
		}
	})
	defer late.Stop()
	for _, r := range all {
		// The run's status and the log report its result. A failed run is not an error of the service.
		result, err := r.Wait()
		s.log.Info("run ended", "folder", r.id, "step", result.Step, "checkpoint", result.Dir, "err", err)
	}
	s.page.Close()
	return nil
}

// allowed refuses keys that name files.
func allowed(key string) error {
	section, _, _ := strings.Cut(key, ".")
	switch {
	case key == "run.name", key == "run.out", key == "model.from":
	case slices.Contains([]string{"run", "model", "batch", "optimizer", "pipeline"}, section):
		return nil
	case key == "data.tokenizer", key == "data.val_fraction":
		return nil
	}
	return fmt.Errorf("%w: this service does not allow the key %.100q", errBad, key)
}
