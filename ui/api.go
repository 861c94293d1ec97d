package ui

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/guard"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// routes sets up the server's routes: the page with its files, and data.
func (s *Server) routes() {
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("GET /{$}", s.page)
	s.mux.HandleFunc("GET /page/{file}", s.asset)
	s.mux.HandleFunc("GET /api/me", s.data(s.me))
	s.mux.HandleFunc("GET /api/runs", s.data(s.listRuns))
	s.mux.HandleFunc("GET /api/diff", s.data(s.diff))
	s.mux.HandleFunc("GET /api/runs/{id}", s.data(s.of((*Server).describeRun)))
	s.mux.HandleFunc("GET /api/runs/{id}/events", s.streamed(s.of((*Server).stream)))
	s.mux.HandleFunc("GET /api/runs/{id}/marks", s.data(s.of((*Server).marksOf)))
	s.mux.HandleFunc("GET /api/runs/{id}/steps", s.data(s.of((*Server).steps)))
	s.mux.HandleFunc("GET /api/runs/{id}/step", s.data(s.of((*Server).step)))
	s.mux.HandleFunc("GET /api/runs/{id}/names", s.data(s.of((*Server).names)))
	s.mux.HandleFunc("GET /api/runs/{id}/config", s.data(s.of((*Server).setup)))
	s.mux.HandleFunc("GET /api/runs/{id}/rate", s.data(s.of((*Server).rate)))
	s.mux.HandleFunc("GET /api/runs/{id}/curves", s.data(s.of((*Server).curvesOf)))
	s.mux.HandleFunc("GET /api/runs/{id}/model", s.data(s.of((*Server).model)))
	s.mux.HandleFunc("GET /api/runs/{id}/samples", s.data(s.of((*Server).samplesOf)))
	s.mux.HandleFunc("POST /api/runs/{id}/change", s.data(s.of((*Server).change)))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, refuse(http.StatusNotFound, "no such route: %s %.100q", r.Method, r.URL.Path))
	})
}

// ServeHTTP answers a request. To mount the server below a path, use http.StripPrefix.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	page := r.Method == http.MethodGet && (r.URL.Path == "/" || strings.HasPrefix(r.URL.Path, "/page/"))
	if err := s.admit(r, page); err != nil {
		s.fail(w, err)
		return
	}
	select {
	case <-s.done:
		s.fail(w, refuse(http.StatusServiceUnavailable, "the server is shutting down"))
		return
	default:
	}
	s.mux.ServeHTTP(w, r)
}

type handler func(w http.ResponseWriter, r *http.Request) error

// data checks the access of a request and limits the number of concurrent requests.
func (s *Server) data(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.asks <- struct{}{}:
			defer func() { <-s.asks }()
		default:
			w.Header().Set("Retry-After", "1")
			s.fail(w, refuse(http.StatusServiceUnavailable, "%d requests are active, which is the limit: try again later", limitRequests))
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // if the server supports it
		s.streamed(h)(w, r)
	}
}

// streamed is data for responses that last; they have their own limit.
func (s *Server) streamed(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		access := Read
		if r.Method == http.MethodPost {
			access = Control
		}
		if err := s.authorize(r, access); err != nil {
			s.fail(w, err)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if err := h(w, r); err != nil {
			s.fail(w, err)
		}
	}
}

// of finds the run of a request.
func (s *Server) of(h func(s *Server, w http.ResponseWriter, r *http.Request, e *entry) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		e := s.run(r.PathValue("id"))
		if e == nil {
			return refuse(http.StatusNotFound, "no run has the id %.40q", r.PathValue("id"))
		}
		return h(s, w, r, e)
	}
}

// fail sends an error as {"error": "…"}.
func (s *Server) fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var no *guard.Refusal
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &no):
		status = no.Status
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, errNoTrace):
		status = http.StatusNotFound
	case errors.Is(err, errOver), errors.Is(err, fs.ErrClosed):
		status = http.StatusConflict
	case errors.Is(err, troupe.ErrOptions):
		status = http.StatusBadRequest
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // the client may have disconnected
}

// answer sends JSON, compressed if it is large.
func answer(w http.ResponseWriter, r *http.Request, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return send(w, r, "application/json", text)
}

func send(w http.ResponseWriter, r *http.Request, kind string, text []byte) error {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Vary", "Accept-Encoding")
	if len(text) < 4<<10 || !wantsGzip(r) {
		_, _ = w.Write(text) // the client may have disconnected
		return nil
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, _ = z.Write(text) // the client may have disconnected
	_ = z.Close()
	return nil
}

// me sends what the client may do.
func (s *Server) me(w http.ResponseWriter, r *http.Request) error {
	var may bool
	if s.o.Authorize != nil {
		may = s.o.Authorize(r, Control) == nil
	} else {
		may = s.checkToken(r, Control) == nil
	}
	return answer(w, r, map[string]any{"version": s.o.Version, "control": may, "token": s.o.Authorize == nil && s.o.Token != ""})
}

func (s *Server) listRuns(w http.ResponseWriter, r *http.Request) error {
	all := []description{}
	entries := s.entries()
	differ := differing(entries)
	for _, e := range entries {
		d := e.describe()
		d.Differs = differ[e]
		all = append(all, d)
	}
	return answer(w, r, map[string]any{"runs": all})
}

func (s *Server) describeRun(w http.ResponseWriter, r *http.Request, e *entry) error {
	return answer(w, r, e.describe())
}

func (s *Server) marksOf(w http.ResponseWriter, r *http.Request, e *entry) error {
	marks, _ := e.marks(0)
	if marks == nil {
		marks = []mark{}
	}
	saved := []int{}
	if f := e.folder(); f != nil {
		f.mu.Lock()
		saved = append(saved, f.in.Checkpoints...)
		f.mu.Unlock()
	}
	return answer(w, r, map[string]any{"marks": marks, "checkpoints": saved})
}

// steps sends the recorded steps.
func (s *Server) steps(w http.ResponseWriter, r *http.Request, e *entry) error {
	return answer(w, r, map[string]any{"steps": e.tracedSteps()})
}

// step sends the drawing of a step: ?n=500, or the newest.
func (s *Server) step(w http.ResponseWriter, r *http.Request, e *entry) error {
	n := -1
	if text := r.URL.Query().Get("n"); text != "" && text != "last" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 0 {
			return refuse(http.StatusBadRequest, "n = %.40q is not a step", text)
		}
	}
	p, err := e.picture(n)
	if errors.Is(err, errNoTrace) && n >= 0 {
		return refuse(http.StatusNotFound, "step %d was not recorded", n)
	}
	if err != nil {
		return err
	}
	return send(w, r, "application/octet-stream", p.Bytes)
}

func (s *Server) names(w http.ResponseWriter, r *http.Request, e *entry) error {
	names := e.curves().Names()
	if names == nil {
		names = []string{}
	}
	return answer(w, r, map[string]any{"names": names})
}

// series is a curve as columns.
type series struct {
	Step []int    `json:"step"`
	X    []number `json:"x"`
	Min  []number `json:"min"`
	Max  []number `json:"max"`
	Mean []number `json:"mean"`
	Last []number `json:"last"`
	N    []int    `json:"n"`
}

// number is null in JSON if it is not finite.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, v, 'g', 8, 64), nil
}

func columns(all []history.Bucket) series {
	c := series{Step: []int{}, X: []number{}, Min: []number{}, Max: []number{}, Mean: []number{}, Last: []number{}, N: []int{}}
	for _, b := range all {
		c.Step, c.N = append(c.Step, b.Step), append(c.N, b.N)
		c.X, c.Min, c.Max = append(c.X, number(b.X)), append(c.Min, number(b.Min)), append(c.Max, number(b.Max))
		c.Mean, c.Last = append(c.Mean, number(b.Mean)), append(c.Last, number(b.Last))
	}
	return c
}

// curvesOf sends curves of a run: ?names=loss,val_loss&by=steps&from=0&to=1000&buckets=800.
func (s *Server) curvesOf(w http.ResponseWriter, r *http.Request, e *entry) error {
	q := r.URL.Query()
	names := strings.Split(q.Get("names"), ",")
	if len(names) > limitCompared {
		return refuse(http.StatusBadRequest, "%d curves in a request: the limit is %d", len(names), limitCompared)
	}
	by, ok := map[string]history.Axis{"": history.BySteps, "steps": history.BySteps, "tokens": history.ByTokens,
		"seconds": history.BySeconds}[q.Get("by")]
	if !ok {
		return refuse(http.StatusBadRequest, "by = %.40q: use steps, tokens or seconds", q.Get("by"))
	}
	bound := func(key string, usual float64) (float64, error) {
		if q.Get(key) == "" {
			return usual, nil
		}
		v, err := strconv.ParseFloat(q.Get(key), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, refuse(http.StatusBadRequest, "%s = %.40q is not a number", key, q.Get(key))
		}
		return v, nil
	}
	from, err := bound("from", 0)
	to, err2 := bound("to", 1e18)
	buckets, err3 := bound("buckets", 800)
	if err := errors.Join(err, err2, err3); err != nil {
		return errors.Join(refuse(http.StatusBadRequest, "%v", err))
	}
	if buckets < 1 || buckets > limitBuckets {
		return refuse(http.StatusBadRequest, "buckets must be 1 to %d", limitBuckets)
	}
	c := e.curves()
	out := make(map[string]series, len(names))
	for _, name := range names {
		out[name] = columns(c.Series(name, by, from, to, int(buckets)))
	}
	return answer(w, r, map[string]any{"curves": out, "steps": c.Len()})
}

// ask is the body of a request for a change.
type ask struct {
	Kind  string  `json:"kind"`
	Step  int64   `json:"step"`
	LR    float64 `json:"lr"`
	MinLR float64 `json:"min_lr"`
}

// change requests a change of a live run. A mark reports its result.
func (s *Server) change(w http.ResponseWriter, r *http.Request, e *entry) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limitBodyBytes))
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	var a ask
	if err := d.Decode(&a); err != nil {
		return refuse(http.StatusBadRequest, "invalid body of a change request: %v", err)
	}
	if e.live == nil {
		return refuse(http.StatusConflict, "this server only reads the run's files: control it in the process that trains it (engine run --ui)")
	}
	c := troupe.Change{Kind: troupe.ChangeKind(a.Kind), Step: a.Step, LR: a.LR, MinLR: a.MinLR}
	if err := c.Check(); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	if err := e.live.change(c); err != nil {
		return err
	}
	s.log.Info("change requested", "run", e.name, "change", c.Kind, "step", c.Step)
	w.WriteHeader(http.StatusAccepted)
	return answer(w, r, map[string]string{"asked": "requested: " + c.String()})
}
