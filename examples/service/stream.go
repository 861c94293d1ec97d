package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// stream sends server-sent events.
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

// lasting removes the deadline for reading the request, which would otherwise end the response.
func lasting(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the connection exists
}

// write writes events. It fails if the reader does not read them in time.
func (s stream) write(text string) error {
	if err := s.ctrl.SetWriteDeadline(time.Now().Add(slowReader)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.ctrl.Flush()
}

// format returns an event as text. Its data is JSON without line breaks.
func format(e entry) string {
	id := ""
	if e.id > 0 {
		id = "id: " + strconv.FormatInt(e.id, 10) + "\n"
	}
	return fmt.Sprintf("%sevent: %s\ndata: %s\n\n", id, e.kind, e.data)
}

// events streams a run's events after Last-Event-ID, in the JSON of docs/events.md. An event "gap" has the number of events that
// were dropped. The stream ends with the run.
func (a *api) events(w http.ResponseWriter, req *http.Request, r *run) {
	var last int64
	if text := req.Header.Get("Last-Event-ID"); text != "" {
		var err error
		if last, err = strconv.ParseInt(text, 10, 64); err != nil || last < 0 {
			refuse(w, fmt.Errorf("%w: Last-Event-ID %.100q is not the number of an event", errBad, text))
			return
		}
	}
	select {
	case a.readers <- struct{}{}:
		defer func() { <-a.readers }()
	default:
		fail(w, http.StatusTooManyRequests, fmt.Errorf("%d clients read events, which is the limit: try again later", limitReaders))
		return
	}
	events, lost, more := r.events.after(last)
	if len(events) == 0 && more == nil { // tells browsers not to reconnect
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
