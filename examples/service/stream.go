package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// stream is an answer of server-sent events.
type stream struct {
	w    http.ResponseWriter
	ctrl *http.ResponseController
}

func newStream(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return stream{w, http.NewResponseController(w)}
}

// lasting takes back the time that the request had to be read in, now that it is: else it would
// end the answer.
func lasting(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // of a connection that is there
}

// write writes events. A reader who does not take them in time is cut off, which is the error.
func (s stream) write(text string) error {
	if err := s.ctrl.SetWriteDeadline(time.Now().Add(slowReader)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.ctrl.Flush()
}

// format is an event. Data is JSON, which has no line breaks.
func format(e entry) string {
	id := ""
	if e.id > 0 {
		id = "id: " + strconv.FormatInt(e.id, 10) + "\n"
	}
	return fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, e.kind, e.data)
}

// events streams a run's events, from the one behind Last-Event-ID on as far as they are kept;
// "gap" says how many are not. The stream ends with the run.
func (a *api) events(w http.ResponseWriter, req *http.Request, r *run) {
	var last int64
	if text := req.Header.Get("Last-Event-ID"); text != "" {
		var err error
		if last, err = strconv.ParseInt(text, 10, 64); err != nil || last < 0 {
			refuse(w, fmt.Errorf("%w: Last-Event-ID is %.100q, not the number of an event", errBad, text))
			return
		}
	}
	select {
	case a.readers <- struct{}{}:
		defer func() { <-a.readers }()
	default:
		fail(w, http.StatusTooManyRequests, fmt.Errorf("%d readers of events are there, which is the most", limitReaders))
		return
	}
	events, lost, more := r.events.after(last)
	if len(events) == 0 && more == nil { // by which a browser knows not to come again
		w.WriteHeader(http.StatusNoContent)
		return
	}
	lasting(w)
	s := newStream(w)
	beat := time.NewTicker(a.heartbeat)
	defer beat.Stop()
	for {
		var text strings.Builder
		if lost > 0 {
			text.WriteString(format(entry{kind: "gap", data: fmt.Appendf(nil, `{"lost":%d}`, lost)}))
		}
		for _, e := range events {
			last = e.id
			text.WriteString(format(e))
		}
		if s.write(text.String()) != nil || more == nil {
			return
		}
		select {
		case <-more:
		case <-beat.C:
			if s.write(": heartbeat\n\n") != nil {
				return
			}
		case <-req.Context().Done():
			return
		}
		events, lost, more = r.events.after(last)
	}
}
