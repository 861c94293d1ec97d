package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// reader follows a run. It remembers what it has been sent, so that it gets only new data.
type reader struct {
	w        http.ResponseWriter
	ctrl     *http.ResponseController
	entry    *entry
	pipeline bool // it shows the pipeline
	mark     int64
	run      []byte
	status   []byte
	traced   int
	step     int64 // the current step
	began    time.Time
	sent     []int // sent actions of that step, by rank
	wrote    time.Time
}

// stream sends the events of a run as server-sent events until the reader disconnects, is too slow, or the run ends:
// "run" has its description, "marks" its new marks, "status" what every actor does, "traced" the last recorded step,
// "now" the new actions of the current step. Except for marks, each event replaces the earlier ones of its kind. The
// numbers of marks are the ids of events: Last-Event-ID continues after that mark.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, e *entry) error {
	rd := &reader{w: w, ctrl: http.NewResponseController(w), entry: e, pipeline: r.URL.Query().Get("pipeline") == "1", traced: -1}
	if text := r.Header.Get("Last-Event-ID"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return refuse(http.StatusBadRequest, "Last-Event-ID %.40q is not the number of an event", text)
		}
		rd.mark = n
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "5")
		return refuse(http.StatusServiceUnavailable, "%d pages follow runs, which is the limit: close another page, or try again later",
			limitStreams)
	}
	_ = rd.ctrl.SetReadDeadline(time.Time{}) // the request has been read
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies
	w.WriteHeader(http.StatusOK)
	every := filesEvery
	if e.live != nil {
		if every = 5 * messageEvery; rd.pipeline {
			every = messageEvery
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		over, err := rd.send()
		if err != nil || over {
			return nil // the reader disconnected, or the run is over
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		case <-s.done:
			return nil
		}
	}
}

// send sends new data. It fails for a reader that does not read it in time.
func (rd *reader) send() (over bool, err error) {
	var out bytes.Buffer
	e := rd.entry
	if marks, n := e.marks(rd.mark); len(marks) > 0 {
		rd.mark = n
		fmt.Fprintf(&out, "id: %d\n", n)
		writeEvent(&out, "marks", marks)
	}
	d := e.describe()
	if text, _ := json.Marshal(d); !bytes.Equal(text, rd.run) {
		rd.run = text
		writeEvent(&out, "run", json.RawMessage(text))
	}
	if rd.pipeline {
		rd.drawing(&out)
	}
	if out.Len() == 0 {
		if time.Since(rd.wrote) < heartbeat {
			return false, nil
		}
		out.WriteString(": here\n\n")
	}
	over = e.live != nil && (d.State == "ended" || d.State == "stopped" || d.State == "failed")
	if over {
		writeEvent(&out, "over", struct{}{})
	}
	if err := rd.ctrl.SetWriteDeadline(time.Now().Add(slowReader)); err != nil {
		return false, err
	}
	rd.wrote = time.Now()
	if _, err := rd.w.Write(out.Bytes()); err != nil {
		return false, err
	}
	return over, rd.ctrl.Flush()
}

// writeEvent writes an event. Its JSON has no line breaks.
func writeEvent(out *bytes.Buffer, kind string, data any) {
	text, err := json.Marshal(data)
	if err != nil { // a number that is not finite
		return
	}
	fmt.Fprintf(out, "event: %s\ndata: %s\n\n", kind, text)
}

// drawing sends the data of the pipeline.
func (rd *reader) drawing(out *bytes.Buffer) {
	if step, ok := rd.entry.lastTraced(); ok && step != rd.traced {
		rd.traced = step
		writeEvent(out, "traced", map[string]int{"step": step})
	}
	l := rd.entry.live
	if l == nil {
		return
	}
	l.look()
	s, ok := l.now()
	if !ok {
		return
	}
	if text, _ := json.Marshal(viewStatus(s, rd.entry.config())); !bytes.Equal(text, rd.status) {
		rd.status = text
		writeEvent(out, "status", json.RawMessage(text))
	}
	rd.underWay(out, l.run.Actions())
}

// nowView holds the new actions of the current step. Acts has six numbers for each action: rank, chunk, type,
// microbatch, start and end in µs since the step began.
type nowView struct {
	Step    int64   `json:"step"`
	Phase   string  `json:"phase"`
	Elapsed float64 `json:"elapsed_ms"`
	Fresh   bool    `json:"fresh"` // drop the actions sent before
	Acts    []int64 `json:"acts"`
}

func (rd *reader) underWay(out *bytes.Buffer, a troupe.Actions) {
	if len(a.Ranks) == 0 { // the step is not recorded
		return
	}
	v := nowView{Step: a.Step, Phase: a.Phase.String(), Elapsed: float64(time.Since(a.Began)) / float64(time.Millisecond), Acts: []int64{}}
	if a.Step != rd.step || !a.Began.Equal(rd.began) || len(rd.sent) != len(a.Ranks) {
		rd.step, rd.began, rd.sent, v.Fresh = a.Step, a.Began, make([]int, len(a.Ranks)), true
	}
	cfg := rd.entry.config()
	stage := stagesOf(cfg, len(a.Ranks))
	us := func(t time.Time) int64 { return t.Sub(a.Began).Microseconds() }
	for r, row := range a.Ranks {
		from := min(rd.sent[r], len(row))
		row = row[from:min(len(row), from+max(1, limitLiveBatch/max(1, len(a.Ranks))))]
		rd.sent[r] = from + len(row)
		if stage[r] < 0 {
			continue
		}
		for _, t := range row {
			v.Acts = append(v.Acts, int64(stage[r]), int64(t.Action.Chunk), int64(t.Action.Type), int64(t.Action.Microbatch), us(t.Start), us(t.End))
		}
	}
	if v.Fresh || len(v.Acts) > 0 || a.Phase == event.Train {
		writeEvent(out, "now", v)
	}
}

// wantsGzip reports whether a response may be compressed.
func wantsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}
