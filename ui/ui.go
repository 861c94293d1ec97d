package ui

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options are how a server is used.
type Options struct {
	// Token is what control takes, and off loopback reading too; "": nobody may control, and off
	// loopback nobody may read. NewToken makes one.
	Token string
	// Remote says that the server is reached from other machines: reading takes the token, too, and
	// no request is answered that came without TLS.
	Remote bool
	// Hosts are further names by which browsers may reach a server on loopback.
	Hosts []string
	// Authorize, if there is one, decides instead of Token, Remote and Hosts: it returns why a request
	// may not have an access. Requests of other sites are refused before.
	Authorize func(r *http.Request, a Access) error
	// Version is what the page shows as the program's.
	Version string
	Logger  *slog.Logger // told of what could not be read; nil: nobody is
}

// Access is what a request is for.
type Access int

// The kinds of access.
const (
	Read    Access = iota // looking
	Control               // pausing, stopping and changing a run
)

func (a Access) String() string {
	if a == Control {
		return "control"
	}
	return "read"
}

// ErrOptions: the options or a name can't be used.
var ErrOptions = errors.New("ui")

// Server serves the page and its data.
type Server struct {
	o       Options
	log     *slog.Logger
	mux     *http.ServeMux
	streams chan struct{} // a place for each reader of events
	asks    chan struct{} // and for each other request
	done    chan struct{} // closed by Close
	running sync.WaitGroup

	mu      sync.Mutex
	runs    []*entry // in the order in which they came
	byID    map[string]*entry
	folders []*shelf
	closed  bool
}

// New makes a server without runs.
func New(o Options) (*Server, error) {
	if len(o.Token) > limitTokenBytes {
		return nil, fmt.Errorf("%w: the token has %d bytes, at most %d can be sent", ErrOptions, len(o.Token), limitTokenBytes)
	}
	s := &Server{o: o, log: o.Logger, byID: make(map[string]*entry), streams: make(chan struct{}, limitStreams),
		asks: make(chan struct{}, limitRequests), done: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.routes()
	return s, nil
}

// Attach shows a live run under a name, until the server is closed. When the run has ended the page
// says so and keeps what there is. The run's folder, where this process sees it, has its past.
func (s *Server) Attach(name string, run Run) error {
	e := newEntry(idOf("live\x00"+name), name)
	e.live = newLive(run)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("%w: the server is closed", ErrOptions)
	case s.byID[e.id] != nil:
		return fmt.Errorf("%w: there is a run %q already", ErrOptions, name)
	}
	s.runs, s.byID[e.id] = append(s.runs, e), e
	s.running.Add(1)
	go func() { // ends with the run, or with Close
		defer s.running.Done()
		s.follow(e)
	}()
	return nil
}

// Detach forgets an attached run, which goes on.
func (s *Server) Detach(name string) {
	id := idOf("live\x00" + name)
	s.mu.Lock()
	e := s.byID[id]
	delete(s.byID, id)
	s.runs = slices.DeleteFunc(s.runs, func(o *entry) bool { return o == e })
	s.mu.Unlock()
	if e != nil {
		e.close()
	}
}

// Open shows the runs of a folder: the folder of a run, or one whose folders are runs. Runs that
// begin there later are shown too.
func (s *Server) Open(dir string) error {
	path, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	f, err := openShelf(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		f.close()
		return fmt.Errorf("%w: the server is closed", ErrOptions)
	}
	s.folders = append(s.folders, f)
	s.list(f)
	return nil
}

// Wait waits until the end of every attached run is noted and told to those who follow it, or ctx
// ends: for a program that ends with its run.
func (s *Server) Wait(ctx context.Context) {
	for _, e := range s.entries() {
		if e.live == nil {
			continue
		}
		select {
		case <-e.live.ended:
		case <-ctx.Done():
			return
		}
	}
	for len(s.streams) > 0 { // they end by themselves, when they have told the end
		select {
		case <-time.After(messageEvery):
		case <-ctx.Done():
			return
		}
	}
}

// Close ends all streams, and lets go of runs and folders; it does not end the runs. Afterwards
// requests are refused.
func (s *Server) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	close(s.done)
	runs, folders := s.runs, s.folders
	s.mu.Unlock()
	for _, e := range runs {
		e.close()
	}
	for _, f := range folders {
		f.close()
	}
	s.running.Wait()
}

// entries are all runs. Folders are listed again now and then.
func (s *Server) entries() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		for _, f := range s.folders {
			s.list(f)
		}
	}
	return slices.Clone(s.runs)
}

// list adds the runs of a folder that are new; mu is held.
func (s *Server) list(f *shelf) {
	for _, r := range f.newRuns() {
		if slices.ContainsFunc(s.runs, func(e *entry) bool { return e.name == r.name && e.live == nil }) { // of another folder
			r.name = filepath.Join(filepath.Base(filepath.Dir(r.path)), r.name)
		}
		e := newEntry(idOf(r.path), r.name)
		if s.byID[e.id] != nil || len(s.runs) >= limitRuns {
			r.files.close()
			continue
		}
		e.files = r.files
		s.runs, s.byID[e.id] = append(s.runs, e), e
	}
	if f.err != nil {
		s.log.Warn("runs can't be listed", "folder", f.path, "err", f.err)
	}
}

// run finds one by its id.
func (s *Server) run(id string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// idOf is the id of what a string identifies: the same with each start, so that links stay, and
// nothing that a path could be made of.
func idOf(what string) string {
	sum := sha256.Sum256([]byte(what))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
