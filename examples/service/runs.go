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

// usual is what a request does not say.
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

// runs are all that the service has begun.
type runs struct {
	dir    string
	most   int // that train at a time
	system *actor.ActorSystem
	log    *slog.Logger
	page   *ui.Server // shows them in a browser

	mu     sync.Mutex
	all    []*run // in the order of their beginning
	active int    // that train, or are being begun
	closed bool
}

// run is one, in a folder of its own.
type run struct {
	*troupe.Run
	id     string
	events *eventLog
}

var (
	errBad    = errors.New("bad request")
	errBusy   = errors.New("the service has as many runs as it takes")
	errClosed = errors.New("the service ends")
)

func openRuns(dir string, most int, system *actor.ActorSystem, log *slog.Logger) (*runs, error) {
	dir, err := filepath.Abs(dir) // the configurations say it, which are read from anywhere
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	// On loopback whoever is on this machine may look; control is the API's, so there is no token.
	page, err := ui.New(ui.Options{Logger: log})
	return &runs{dir: dir, most: most, system: system, log: log, page: page}, err
}

// begin begins a run on a text. The sets are keys of the configuration with their values.
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
	if s.closed { // meanwhile
		r.Stop()
	}
	return r, nil
}

// enter counts a run that is to begin.
func (s *runs) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosed
	case s.active >= s.most:
		return fmt.Errorf("%w: %d train, which is the most at a time; stop one, or wait", errBusy, s.active)
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
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) } // a string always is
	sets = append(sets, "run.name="+quoted(r.id), "run.out="+quoted(filepath.Join(folder, "run")), "data.train=["+quoted(file)+"]")
	cfg, err := config.Parse("service", []byte(usual), sets, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBad, err)
	}
	if cfg.HasOwnTable() {
		return nil, fmt.Errorf("%w: pipeline.schedule is not to be set to a file here", errBad)
	}
	// The service's own actor. It is there before the run, so that it misses nothing.
	watcher, err := s.system.Root.SpawnNamed(actor.PropsFromProducer(func() actor.Actor { return &recorder{events: r.events, ended: leave} }),
		"recorder-"+r.id)
	if err != nil {
		return nil, err
	}
	// The run ends by Stop and not by a request's context: it goes on when the request is answered.
	r.Run, err = troupe.Start(context.Background(), cfg, troupe.Options{System: s.system, Logger: s.log.With("folder", r.id),
		Watchers: []*actor.PID{watcher}})
	if err != nil {
		s.system.Root.Stop(watcher)
		return nil, err
	}
	if err := s.page.Attach(r.id, r.Run); err != nil { // the service ends
		s.log.Warn("the run is not shown in a browser", "folder", r.id, "err", err)
	}
	return r, nil
}

// leave counts a run that has ended.
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

// close stops every run with a checkpoint. Those that take too long are killed: their last
// checkpoint stays.
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
		// How a run has ended its status says, and the log; to the service it is no failure.
		result, err := r.Wait()
		s.log.Info("run ended", "folder", r.id, "step", result.Step, "checkpoint", result.Dir, "err", err)
	}
	s.page.Close()
	return nil
}

// allowed refuses keys that a request may not set: where files are.
func allowed(key string) error {
	section, _, _ := strings.Cut(key, ".")
	switch {
	case key == "run.name", key == "run.out", key == "model.from":
	case slices.Contains([]string{"run", "model", "batch", "optimizer", "pipeline"}, section):
		return nil
	case key == "data.tokenizer", key == "data.val_fraction":
		return nil
	}
	return fmt.Errorf("%w: %.100q is not to be set here", errBad, key)
}
