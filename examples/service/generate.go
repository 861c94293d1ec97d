package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
)

// asking is a request to continue a text.
type asking struct {
	Prompt      string   `json:"prompt"`
	Tokens      int      `json:"tokens"`
	Temperature float64  `json:"temperature"`
	TopK        int      `json:"top_k"`
	Seed        uint64   `json:"seed"`
	Context     int      `json:"context"`   // longest context in tokens; 0: all positions of the model
	Stream      bool     `json:"stream"`    // answer with server-sent events: step, text …, done
	MaxAgeS     *float64 `json:"max_age_s"` // largest age of the weights in seconds
	MaxSteps    int64    `json:"max_steps"` // or in steps
}

func (q *asking) check() error {
	switch {
	case q.Tokens > limitTokens:
		return fmt.Errorf("%w: tokens = %d, the limit is %d", errBad, q.Tokens, limitTokens)
	case len(q.Prompt) > limitPromptBytes:
		return fmt.Errorf("%w: the prompt has %d bytes, the limit is %d", errBad, len(q.Prompt), limitPromptBytes)
	case q.MaxSteps < 0, q.MaxAgeS != nil && !(*q.MaxAgeS >= 0 && *q.MaxAgeS < 1e6):
		return fmt.Errorf("%w: max_steps must be 0 or more, and max_age_s 0 or more and below 1e6", errBad)
	}
	return nil
}

// generate continues a text with the weights of one step, which the answer names, while the run continues. It stops
// when the request ends.
func (a *api) generate(w http.ResponseWriter, req *http.Request, r *run) {
	q := asking{Tokens: 100}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, limitAskBytes))
	if err != nil {
		err = fmt.Errorf("%w: %w", errBad, err)
	} else if err = decode(body, &q); err == nil {
		err = q.check()
	}
	if err != nil {
		refuse(w, err)
		return
	}
	select {
	case a.generating <- struct{}{}:
		defer func() { <-a.generating }()
	default:
		fail(w, http.StatusTooManyRequests, fmt.Errorf("%d texts are being generated, which is the limit: try again later", limitGenerating))
		return
	}
	lasting(w)
	ctx, cancel := context.WithTimeout(req.Context(), generateTimeout)
	defer cancel()
	o := troupe.SnapshotOptions{MaxSteps: q.MaxSteps, MaxAge: usualMaxAge}
	if q.MaxAgeS != nil {
		o.MaxAge = time.Duration(*q.MaxAgeS * float64(time.Second))
	}
	snapshot, err := r.Snapshot(ctx, o)
	if err != nil {
		refuse(w, err)
		return
	}
	write := a.whole
	if q.Stream {
		write = a.pieces
	}
	write(ctx, w, q, snapshot)
	if err := snapshot.Close(); err != nil {
		a.runs.log.Error("close a snapshot", "folder", r.id, "err", err)
	}
}

// options has what of the text the model did not see written into a report.
func (q *asking) options(report *troupe.GenerateReport) troupe.TextOptions {
	return troupe.TextOptions{Prompt: q.Prompt, Tokens: q.Tokens, Temperature: q.Temperature, TopK: q.TopK, Seed: q.Seed,
		Context: q.Context, Report: report}
}

// whole answers when all is written.
func (a *api) whole(ctx context.Context, w http.ResponseWriter, q asking, s *troupe.Snapshot) {
	var text strings.Builder
	var report troupe.GenerateReport
	if err := s.Generate(ctx, q.options(&report), func(b []byte) error { text.Write(b); return nil }); err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, struct {
		Step int64  `json:"step"`
		Text string `json:"text"`
		troupe.GenerateReport
	}{s.Step(), text.String(), report})
}

// pieces streams the text.
func (a *api) pieces(ctx context.Context, w http.ResponseWriter, q asking, s *troupe.Snapshot) {
	to, begun := stream{}, false
	send := func(kind string, v any) error {
		if !begun { // errors before the first piece get an HTTP status
			to, begun = newStream(w), true
			if err := to.write(format(entry{kind: "step", data: fmt.Appendf(nil, `{"step":%d}`, s.Step())})); err != nil {
				return err
			}
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return to.write(format(entry{kind: kind, data: b}))
	}
	var report troupe.GenerateReport
	err := s.Generate(ctx, q.options(&report), func(b []byte) error { return send("text", map[string]string{"text": string(b)}) })
	switch {
	case err == nil:
		_ = send("done", report) // the client may have disconnected
	case !begun:
		refuse(w, err)
	case errors.Is(err, context.Canceled): // the client has disconnected
	default:
		_ = send("error", map[string]string{"error": err.Error()})
	}
}
