package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
)

// api answers requests. It reports errors as {"error": "…"}.
type api struct {
	runs       *runs
	heartbeat  time.Duration
	readers    chan struct{} // a slot for each reader of events
	generating chan struct{} // a slot for each generated text
}

func newAPI(runs *runs, heartbeat time.Duration) http.Handler {
	a := &api{runs: runs, heartbeat: heartbeat, readers: make(chan struct{}, limitReaders), generating: make(chan struct{}, limitGenerating)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /runs", a.begin) // the body is a text, with configuration keys in the query; or JSON, see beginning
	mux.HandleFunc("GET /runs", a.list)
	mux.HandleFunc("GET /runs/{id}", a.of(a.status))
	mux.HandleFunc("GET /runs/{id}/events", a.of(a.events)) // server-sent events
	mux.HandleFunc("POST /runs/{id}/generate", a.of(a.generate))
	for _, kind := range []string{"pause", "resume", "rate", "checkpoint", "stop"} { // see change
		mux.HandleFunc("POST /runs/{id}/"+kind, a.of(a.change(kind)))
	}
	mux.Handle("/ui/", http.StripPrefix("/ui", runs.page)) // the page of package ui, which shows the runs in a browser
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		fail(w, http.StatusNotFound, fmt.Errorf("no such route: %s %.200q", req.Method, req.URL.Path))
	})
	return mux
}

// of finds the run of a request.
func (a *api) of(answer func(http.ResponseWriter, *http.Request, *run)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if r := a.runs.find(req.PathValue("id")); r != nil {
			answer(w, req, r)
			return
		}
		fail(w, http.StatusNotFound, fmt.Errorf("no run has the id %.100q", req.PathValue("id")))
	}
}

// beginning is a request to start a run, as JSON.
type beginning struct {
	Text string                     `json:"text"`
	Set  map[string]json.RawMessage `json:"set"` // configuration keys, such as "run.steps"
}

func (a *api) begin(w http.ResponseWriter, req *http.Request) {
	text, sets, err := readBeginning(w, req)
	var r *run
	if err == nil {
		r, err = a.runs.begin(text, sets)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Location", "/runs/"+r.id)
	answer(w, http.StatusCreated, describe(r))
}

func readBeginning(w http.ResponseWriter, req *http.Request) (text []byte, sets []string, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limitBodyBytes))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errBad, err)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: parse the query: %w", errBad, err)
	}
	var values = map[string]string{}
	for key, v := range query {
		values[key] = v[len(v)-1]
	}
	if kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")); kind == "application/json" {
		var b beginning
		if err := decode(body, &b); err != nil {
			return nil, nil, err
		}
		body = []byte(b.Text)
		for key, v := range b.Set {
			values[key] = string(v) // JSON numbers, booleans, strings and lists are also TOML
		}
	}
	for key, v := range values {
		if err := allowed(key); err != nil {
			return nil, nil, err
		}
		sets = append(sets, key+"="+v)
	}
	return body, sets, nil
}

func (a *api) list(w http.ResponseWriter, _ *http.Request) {
	all := []description{}
	for _, r := range a.runs.list() {
		all = append(all, describe(r))
	}
	answer(w, http.StatusOK, map[string]any{"runs": all})
}

// description describes a run.
type description struct {
	ID string `json:"id"`
	state
	Steps      int    `json:"steps"`
	Parameters int64  `json:"parameters"`
	Stages     int    `json:"stages"`
	Schedule   string `json:"schedule"`
	Layout     string `json:"layout"`
	Out        string `json:"out"`
}

func describe(r *run) description {
	i := r.Info()
	return description{r.id, r.events.now(), i.Steps, i.Parameters, i.Stages, i.Schedule, i.Layout, i.Out}
}

// status sends the description of a run, the activity of each of its actors, and the chain of waits down to the root.
func (a *api) status(w http.ResponseWriter, _ *http.Request, r *run) {
	s := r.Status()
	doing := make(map[string]string, len(s.Actors))
	for _, a := range s.Actors {
		doing[a.Actor] = a.Describe()
	}
	answer(w, http.StatusOK, struct {
		description
		Waits  []string          `json:"waits"`
		Actors map[string]string `json:"actors"`
	}{describe(r), s.Chain(), doing})
}

// change requests a change of a run. The body {"step": 500} requests it after step 500; an empty body, after the
// current step. A change of the learning rate needs {"lr": 1e-4, "min_lr": 1e-5, "step": 500}. An event reports that
// the run accepted or refused the change.
func (a *api) change(kind string) func(http.ResponseWriter, *http.Request, *run) {
	return func(w http.ResponseWriter, req *http.Request, r *run) {
		c := troupe.Change{}
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limitAskBytes))
		if err != nil {
			err = fmt.Errorf("%w: %w", errBad, err)
		} else if len(body) > 0 {
			err = decode(body, &c)
		}
		if err == nil && c.Kind != "" {
			err = fmt.Errorf("%w: remove kind from the body: the path has the kind of change", errBad)
		}
		if err != nil {
			refuse(w, err)
			return
		}
		if r.events.ended() {
			fail(w, http.StatusConflict, fmt.Errorf("run %s has %s", r.id, r.events.now().State))
			return
		}
		m := map[string]any{"kind": kind}
		if c.Kind = troupe.ChangeKind(kind); c.Step > 0 {
			m["step"] = c.Step
		}
		if err := r.Change(c); err != nil {
			refuse(w, err)
			return
		}
		answer(w, http.StatusAccepted, m)
	}
}

// decode reads one JSON value and rejects unknown fields.
func decode(body []byte, to any) error {
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("unexpected data after the JSON value")
		}
	}
	if err != nil {
		return fmt.Errorf("%w: parse the JSON body: %w", errBad, err)
	}
	return nil
}

// refuse answers with an error and its HTTP status.
func refuse(w http.ResponseWriter, err error) {
	var setup *troupe.SetupError
	var large *http.MaxBytesError
	status := http.StatusInternalServerError
	switch {
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, errBusy):
		status = http.StatusTooManyRequests
	case errors.Is(err, errClosed), errors.Is(err, troupe.ErrSnapshots), errors.Is(err, checkpoint.ErrNoSpace):
		status = http.StatusServiceUnavailable
	case errors.Is(err, troupe.ErrNoSnapshot), errors.Is(err, troupe.ErrNotFinite):
		status = http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	case errors.As(err, &setup), errors.Is(err, troupe.ErrOptions), errors.Is(err, errBad):
		status = http.StatusBadRequest
	}
	fail(w, status, err)
}

func fail(w http.ResponseWriter, status int, err error) {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
