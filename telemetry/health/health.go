package health

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Paths of the two answers.
const (
	LivePath  = "/healthz"
	ReadyPath = "/readyz"
)

// AskTime is how long an answer waits for a check.
const AskTime = 2 * time.Second

// checkTime is how long a check may wait. Its own error, which says more than that it is late, still gets into the answer.
const checkTime = AskTime - 100*time.Millisecond

// Check is one part of a process.
type Check struct {
	Part string // such as "journal"
	// Live says that the process can't recover from a failure of the part, and has to be restarted: the part is also in
	// the answer of LivePath.
	Live bool
	// Ask says how the part is, and why it does not work. ctx ends before the wait for its answer does.
	Ask func(ctx context.Context) (text string, err error)
}

// Within returns how much of a check's time is left, for calls that take no context.
func Within(ctx context.Context) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		return max(time.Until(at), time.Millisecond) // below 0, some calls wait without a limit
	}
	return checkTime
}

// Health is the health of a process.
type Health struct {
	process string

	mu    sync.Mutex
	parts []*part // nil: the process is starting
}

// New makes the health of a process, such as "coordinator". Until Set is called the process is alive and not ready.
func New(process string) *Health { return &Health{process: process} }

// Set sets the checks.
func (h *Health) Set(checks ...Check) {
	parts := make([]*part, 0, len(checks))
	for _, c := range checks {
		parts = append(parts, &part{Check: c})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parts = parts
}

// Answer is the body of an answer.
type Answer struct {
	Process string `json:"process"`
	OK      bool   `json:"ok"`
	Checks  []Part `json:"checks"`
}

// Part is a checked part in an answer.
type Part struct {
	Part string `json:"part"`
	OK   bool   `json:"ok"`
	Text string `json:"text"` // how it is, or why it does not work
}

// Ask asks the checks; with live only those that are Live.
func (h *Health) Ask(ctx context.Context, live bool) Answer {
	h.mu.Lock()
	parts := h.parts
	h.mu.Unlock()
	a := Answer{Process: h.process, OK: true, Checks: []Part{}}
	if parts == nil && !live {
		return Answer{Process: h.process, Checks: []Part{{Part: "start", Text: "the process is starting"}}}
	}
	var chosen []*part
	for _, p := range parts {
		if p.Live || !live {
			chosen = append(chosen, p)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	waits := make([]<-chan struct{}, len(chosen))
	for i, p := range chosen {
		waits[i] = p.ask()
	}
	for i, p := range chosen {
		one := Part{Part: p.Part}
		select {
		case <-waits[i]:
			one.Text, one.OK = p.last()
		case <-ctx.Done():
			one.Text = fmt.Sprintf("no answer within %v", AskTime)
		}
		a.OK = a.OK && one.OK
		a.Checks = append(a.Checks, one)
	}
	return a
}

// part is a check with its last result.
type part struct {
	Check

	mu      sync.Mutex
	running chan struct{} // closed when the check has returned; nil: it does not run
	text    string
	err     error
}

// ask starts the check, unless it runs already, and returns a channel that is closed when it has returned.
func (p *part) ask() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running != nil {
		return p.running
	}
	done := make(chan struct{})
	p.running = done
	go func() { // ends with the check, of which there is one at a time
		ctx, cancel := context.WithTimeout(context.Background(), checkTime)
		defer cancel()
		text, err := p.Ask(ctx)
		p.mu.Lock()
		p.text, p.err, p.running = text, err, nil
		p.mu.Unlock()
		close(done)
	}()
	return done
}

func (p *part) last() (text string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err.Error(), false
	}
	return p.text, true
}

// Live serves LivePath.
func (h *Health) Live() http.Handler { return h.serve(true) }

// Ready serves ReadyPath.
func (h *Health) Ready() http.Handler { return h.serve(false) }

func (h *Health) serve(live bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := h.Ask(r.Context(), live)
		text, err := json.MarshalIndent(a, "", "  ")
		if err != nil { // it has only texts
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !a.OK {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(append(text, '\n')) // a client that has gone needs no answer
	})
}
