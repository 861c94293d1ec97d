package serve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/troupe-ml/troupe/internal/chat"
)

// errBegun: a stream ended early, after its status was sent.
var errBegun = errors.New("the answer has begun")

// events sends an answer as server-sent events.
type events struct {
	s     *Server
	w     http.ResponseWriter
	q     *request
	a     reply
	begun bool
}

// send sends a part of the answer. It fails if the client does not read it in time.
func (e *events) send(c *choice, with *usage) error {
	if !e.begun {
		e.begin()
		if e.q.chat {
			empty := ""
			if err := e.send(&choice{Delta: &said{Role: "assistant", Content: &empty}}, nil); err != nil {
				return err
			}
		}
	}
	part := e.a
	part.Choices, part.Usage = []choice{}, with
	if c != nil {
		part.Choices = append(part.Choices, *c)
	}
	b, err := json.Marshal(part)
	if err != nil {
		return err
	}
	return e.data(b)
}

func (e *events) begin() {
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // for proxies
	e.w.WriteHeader(http.StatusOK)
}

func (e *events) data(b []byte) error {
	if err := e.s.deadline(e.w); err != nil {
		return err
	}
	if _, err := e.w.Write(append(append([]byte("data: "), b...), "\n\n"...)); err != nil {
		return err
	}
	if err := http.NewResponseController(e.w).Flush(); err != nil {
		return err
	}
	return writeBy(e.w, time.Time{}) // HTTP/2 ends a stream at its deadline, even if nothing is written
}

// text sends a piece of the text.
func (e *events) text(piece string) error {
	if piece == "" {
		return nil
	}
	if e.q.chat {
		return e.send(&choice{Delta: &said{Content: &piece}}, nil)
	}
	return e.send(&choice{Text: &piece}, nil)
}

// streamed sends the text as it is generated. What may be a call of a function is held back until it is complete.
func (s *Server) streamed(ctx context.Context, w http.ResponseWriter, q *request, a reply) error {
	if q.chat {
		a.Object += ".chunk"
	}
	e := &events{s: s, w: w, q: q, a: a}
	defer func() { _ = s.deadline(w) }() // for the end of the answer, which the server writes
	tools, marker, all, sent := q.o.Tools != nil, "", "", 0
	if tools {
		marker = s.model.ToolMarker(q.o.Tools)
	}
	err := s.model.Generate(ctx, q.o, func(b []byte) error {
		if !tools {
			return e.text(string(b))
		}
		all += string(b)
		ready := max(sent, len(all)-chat.HeldBack(all, marker))
		piece := all[sent:ready]
		sent = ready
		return e.text(piece)
	})
	switch {
	case err != nil && !e.begun:
		return err // with a status
	case err != nil:
		failed := errorOf(err)
		if failed.cause != "" {
			s.o.Log("answer a request: " + failed.cause)
		}
		b, _ := json.Marshal(map[string]*apiError{"error": failed}) // texts can always be marshaled
		_ = e.data(b)                                               // the client may have disconnected
		return errBegun
	}
	finish := q.o.Report.Finish
	last := choice{Finish: &finish}
	if tools {
		content, calls := chat.ParseCalls(all, marker, q.o.Tools)
		if calls != nil {
			finish = finishCalls
		}
		if len(content) > sent {
			err = e.text(content[sent:])
		}
		if err == nil && calls != nil {
			err = e.send(&choice{Delta: &said{Calls: callsOf(calls, true)}}, nil)
		}
	}
	empty := ""
	if last.Delta = new(said); !q.chat {
		last.Delta, last.Text = nil, &empty
	}
	if err == nil {
		err = e.send(&last, nil)
	}
	if err == nil && q.usage {
		err = e.send(nil, q.counts())
	}
	if err == nil {
		err = e.data([]byte("[DONE]"))
	}
	if err != nil {
		return errBegun
	}
	return nil
}
