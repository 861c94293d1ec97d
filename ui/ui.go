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

	"github.com/troupe-ml/troupe/internal/base/guard"
)

// Options configure a server.
type Options struct {
	// Token is the access token for control, and with Remote for reading too. "": control is off, and with Remote
	// reading too. NewToken makes one.
	Token string
	// Remote means that other machines can reach the server: reading needs the token too, and the server refuses
	// requests without TLS.
	Remote bool
	// Hosts are more host names that a server on loopback accepts.
	Hosts []string
	// Authorize, if not nil, replaces Token, Remote and Hosts: it returns an error if a request may not have an
	// access. The server refuses cross-site requests before it calls Authorize.
	Authorize func(r *http.Request, a Access) error
	// Version is the program's version, which /api/me returns.
	Version string
	Logger  *slog.Logger // for files that cannot be read; nil: no log
}

// Access is the kind of access that a request needs.
type Access int

// The kinds of access.
const (
	Read    Access = iota // reading data
	Control               // pausing, stopping or changing a run
)

func (a Access) String() string {
	if a == Control {
		return "control"
	}
	return "read"
}

// ErrOptions means that the options, a name or a folder can't be used.
var ErrOptions = errors.New("ui")

// Server serves the page and its data.
type Server struct {
	o       Options
	log     *slog.Logger
	mux     *http.ServeMux
	streams chan struct{} // a slot for each reader of events
	asks    chan struct{} // a slot for each other request
	done    chan struct{} // closed by Close
	running sync.WaitGroup

	mu      sync.Mutex
	runs    []*entry // in the order of their addition
	byID    map[string]*entry
	folders []*shelf
	closed  bool
}

// New returns a server without runs.
func New(o Options) (*Server, error) {
	if len(o.Token) > guard.LimitTokenBytes {
		return nil, fmt.Errorf("%w: the token has %d bytes, the limit is %d", ErrOptions, len(o.Token), guard.LimitTokenBytes)
	}
	s := &Server{o: o, log: o.Logger, byID: make(map[string]*entry), streams: make(chan struct{}, limitStreams),
		asks: make(chan struct{}, limitRequests), done: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.routes()
	return s, nil
}

// Attach adds a live run under a name, until Detach or Close. After the run has ended, the page still shows its data.
// If this process can read the run's folder, the page also shows the steps before Attach.
func (s *Server) Attach(name string, run Run) error {
	e := newEntry(idOf("live\x00"+name), name)
	e.live = newLive(run)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return fmt.Errorf("%w: the server is closed", ErrOptions)
	case s.byID[e.id] != nil:
		return fmt.Errorf("%w: the server already has a run %q", ErrOptions, name)
	}
	s.runs, s.byID[e.id] = append(s.runs, e), e
	s.running.Add(1)
	go func() { // ends with the run, or with Close
		defer s.running.Done()
		s.follow(e)
	}()
	return nil
}

// Detach removes an attached run from the server. The run itself continues.
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

// Open adds the runs of a folder: the folder of a run, or a folder of such folders, including those that are created
// later.
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

// Wait waits until every attached run has ended and its readers have received the end, or until ctx ends. It is for
// programs that end with their run.
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
	for len(s.streams) > 0 { // they end after they have sent the end
		select {
		case <-time.After(messageEvery):
		case <-ctx.Done():
			return
		}
	}
}

// Close ends all streams and releases runs and folders. It does not stop the runs. Afterwards the server refuses
// requests.
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

// entries returns all runs. It lists the folders again from time to time.
func (s *Server) entries() []*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		for _, f := range s.folders {
			s.list(f)
		}
	}
	live := make(map[string]bool) // the folders of live runs, which a folder of runs may also have
	for _, e := range s.runs {
		if e.live != nil {
			live[e.path()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(s.runs), func(e *entry) bool { return e.live == nil && live[e.path()] })
}

// list adds the new runs of a folder; mu is held.
func (s *Server) list(f *shelf) {
	for _, r := range f.newRuns() {
		if slices.ContainsFunc(s.runs, func(e *entry) bool { return e.name == r.name && e.live == nil }) { // from another folder
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
		s.log.Warn("list the runs of a folder", "folder", f.path, "err", f.err)
	}
}

// run finds a run by its id; nil: there is none.
func (s *Server) run(id string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

// idOf returns an id for a string. It is the same at each start, so that links stay valid, and it cannot be used as a
// path.
func idOf(what string) string {
	sum := sha256.Sum256([]byte(what))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}
