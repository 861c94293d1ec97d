package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/base/guard"
	"github.com/troupe-ml/troupe/telemetry/health"
	"github.com/troupe-ml/troupe/telemetry/process"
)

// Model generates texts, at the same time for several callers: an infer.Batch.
type Model interface {
	Generate(ctx context.Context, o infer.TextOptions, emit func(text []byte) error) error
	// ToolMarker returns the text with which the model begins a call of a function.
	ToolMarker(tools json.RawMessage) string
	Stats() infer.BatchStats
}

var _ Model = (*infer.Batch)(nil)

// Options configure a server.
type Options struct {
	Name   string // of the model, in requests and answers
	Token  string // that requests need; "": none, which is allowed on loopback only
	Remote bool   // other machines can reach the server: it refuses requests without TLS
	// Hosts are more host names that a server on loopback accepts.
	Hosts []string
	// Defaults are how texts are generated unless a request says otherwise; without any, at temperature 1.
	Defaults  infer.Defaults
	MaxTokens int // most tokens of an answer; 0: LimitTokens
	// Grace is how long requests may take when the server shuts down.
	Grace time.Duration
	Build string
	Log   func(message string) // nil: failures inside the server are not logged
}

// ErrOptions: the options of a server contradict each other.
var ErrOptions = errors.New("server options")

// Server answers requests. It is an http.Handler.
type Server struct {
	o       Options
	model   Model
	mux     *http.ServeMux
	health  *health.Health
	created int64
	// patience is how long a client may take to read.
	patience time.Duration

	draining          atomic.Bool
	answered, refused atomic.Uint64
}

// New returns a server of a model.
func New(m Model, o Options) (*Server, error) {
	switch {
	case o.Name == "":
		return nil, fmt.Errorf("%w: the model needs a name", ErrOptions)
	case o.Remote && o.Token == "":
		return nil, fmt.Errorf("%w: a server that other machines can reach needs a token", ErrOptions)
	case len(o.Token) > guard.LimitTokenBytes:
		return nil, fmt.Errorf("%w: the token has %d bytes, the limit is %d", ErrOptions, len(o.Token), guard.LimitTokenBytes)
	case o.MaxTokens < 0 || o.MaxTokens > maxTokens:
		return nil, fmt.Errorf("%w: at most %d tokens; use 1 to %d", ErrOptions, o.MaxTokens, maxTokens)
	case o.MaxTokens == 0:
		o.MaxTokens = LimitTokens
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	s := &Server{o: o, model: m, mux: http.NewServeMux(), health: health.New("server"), created: clock.Now().Unix(),
		patience: slowReader}
	s.health.Set(s.Checks()...)
	s.mux.Handle("GET "+health.LivePath, s.health.Live())
	s.mux.Handle("GET "+health.ReadyPath, s.health.Ready())
	s.mux.HandleFunc("GET /v1/models", s.allowed(s.models))
	s.mux.HandleFunc("GET /v1/models/{name...}", s.allowed(s.models))
	s.mux.HandleFunc("POST /v1/chat/completions", s.allowed(s.answer(true)))
	s.mux.HandleFunc("POST /v1/completions", s.allowed(s.answer(false)))
	s.mux.HandleFunc("/", s.allowed(func(_ http.ResponseWriter, r *http.Request) error {
		return &apiError{Message: fmt.Sprintf("no such route: %s %.200s", r.Method, r.URL.EscapedPath()), Type: invalidRequest,
			status: http.StatusNotFound}
	}))
	return s, nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recovered(w)
	s.mux.ServeHTTP(w, r)
}

// recovered answers for a handler that panics. It breaks the connection off if the answer has begun.
func (s *Server) recovered(w http.ResponseWriter) {
	v := recover()
	if v == nil {
		return
	}
	err := fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	if w.Header().Get("Content-Type") == "" { // every answer sets it first
		s.fail(w, err)
		return
	}
	s.refused.Add(1)
	s.o.Log("answer a request: " + err.Error())
	panic(http.ErrAbortHandler)
}

// allowed answers with f, or with its error, if a request has access.
func (s *Server) allowed(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := s.access(r)
		if err == nil {
			err = f(w, r)
		}
		if err != nil {
			s.fail(w, err)
		}
	}
}

// access returns an error if a request is refused.
func (s *Server) access(r *http.Request) error {
	if len(r.RequestURI) > limitURLBytes {
		return guard.Refuse(http.StatusRequestURITooLong, "the address has %d bytes, the limit is %d", len(r.RequestURI), limitURLBytes)
	}
	if err := guard.Reached(r, s.o.Remote, s.o.Hosts); err != nil {
		return err
	}
	if err := guard.SameSite(r, false); err != nil {
		return err
	}
	if s.o.Token == "" {
		return nil
	}
	given, ok := guard.Bearer(r)
	switch {
	case !ok:
		return guard.Refuse(http.StatusUnauthorized, "this server needs a token: send the header Authorization: Bearer TOKEN")
	case !guard.SameToken(given, s.o.Token):
		return guard.Refuse(http.StatusUnauthorized, "this server does not accept the token")
	}
	return nil
}

// modelInfo describes a model.
type modelInfo struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// models lists the model, or describes it.
func (s *Server) models(w http.ResponseWriter, r *http.Request) error {
	one := modelInfo{s.o.Name, "model", s.created, "troupe"}
	if name := r.PathValue("name"); name != "" {
		if name != s.o.Name {
			return s.noModel(name)
		}
		s.send(w, http.StatusOK, one)
		return nil
	}
	s.send(w, http.StatusOK, map[string]any{"object": "list", "data": []modelInfo{one}})
	return nil
}

func (s *Server) noModel(name string) error {
	param := "model"
	return (&apiError{Message: fmt.Sprintf("the model %.200q does not exist: this server has %q", name, s.o.Name), Type: invalidRequest,
		Param: &param, status: http.StatusNotFound}).withCode("model_not_found")
}

// Checks are the checks of the server's health.
func (s *Server) Checks() []health.Check {
	return []health.Check{{Part: "model", Ask: func(context.Context) (string, error) {
		if s.draining.Load() {
			return "", errors.New("the server is shutting down")
		}
		of := s.model.Stats()
		return fmt.Sprintf("generating %d texts; %d wait", of.Running, of.Waiting), nil
	}}}
}

// State is the state of the server, for its metrics.
func (s *Server) State() process.Server {
	of := s.model.Stats()
	return process.Server{Build: s.o.Build, Running: of.Running, Waiting: of.Waiting, Texts: of.Texts, PromptTokens: of.PromptTokens,
		Tokens: of.Tokens, Answered: s.answered.Load(), Refused: s.refused.Load()}
}

// Serve answers requests until ctx ends, and then those in progress, up to Options.Grace. A listener that other machines can
// reach has to use TLS.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := &http.Server{Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: limitHeaderBytes, BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog: log.New(io.Discard, "", 0)} // it only reports broken connections of clients
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // ends with Shutdown or Close
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	s.draining.Store(true)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.Grace)
	defer cancel()
	err := server.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		end() // the texts in progress end, with an error for their clients
		farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
		defer cancel()
		if err = server.Shutdown(farewell); errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// deadline gives a client the time to read what is written next. Only connections have deadlines.
func (s *Server) deadline(w http.ResponseWriter) error { return writeBy(w, time.Now().Add(s.patience)) }

// writeBy sets the time by which a client has to read; zero: any time.
func writeBy(w http.ResponseWriter, t time.Time) error {
	err := http.NewResponseController(w).SetWriteDeadline(t)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// isJSON reports whether a request says that its body is JSON. Web pages can't send that to another site without its consent.
func isJSON(r *http.Request) bool {
	kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "application/json")
}
