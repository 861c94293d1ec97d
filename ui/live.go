package ui

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/telemetry/history"
)

// live is the state of a run that this process trains or follows.
type live struct {
	run     Run
	records *history.History // metrics of a run whose folder is not readable here
	marks   markLog
	done    chan struct{} // closed by close
	ended   chan struct{} // closed after the run's end is recorded

	mu       sync.Mutex // of what follows
	info     troupe.Info
	begun    bool
	files    *files    // nil: the folder is not readable here
	told     time.Time // time of the last call of Record
	last     *troupe.StepEvent
	ideal    *float64
	at       time.Time         // time of last
	traced   *troupe.StepEvent // the last recorded step
	paused   bool
	stalled  bool
	over     bool
	result   troupe.Result
	err      error
	status   troupe.Status
	statusAt time.Time
	closed   bool
}

func newLive(run Run) *live {
	return &live{run: run, records: history.New(limitRecords), done: make(chan struct{}), ended: make(chan struct{})}
}

func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	if l.files != nil {
		l.files.close()
	}
}

func (l *live) folder() *files {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.files
}

// follow processes the events of a run until it ends or the server is closed.
func (s *Server) follow(e *entry) {
	l := e.live
	sub := l.run.Subscribe()
	defer sub.Close()
	events := sub.Events()
	infos := make(chan troupe.Info, 1)
	go func() { infos <- l.run.Info() }() // returns when the run has started, or never will
	for begun := false; ; {
		select {
		case i := <-infos:
			begun = true
			l.begin(i, s)
		case event, more := <-events:
			if !begun {
				select {
				case i := <-infos:
					begun = true
					l.begin(i, s)
				case <-l.done:
					return
				}
			}
			if !more {
				result, err := l.run.Wait()
				l.end(result, err)
				return
			}
			l.event(event)
		case <-l.done:
			return
		}
	}
}

// begin records the run's description, and opens its folder if it is readable here.
func (l *live) begin(i troupe.Info, s *Server) {
	var f *files
	if i.Out != "" {
		if fsys, err := folder.Open(i.Out); err == nil {
			if ok, err := isRun(fsys); ok && err == nil {
				f = openFiles(fsys)
				f.refresh()
			} else {
				_ = fsys.Close() // nothing was written
			}
		}
	}
	if f != nil {
		past, _ := f.marks.after(0)
		for _, m := range past {
			l.marks.add(m)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info, l.begun, l.files = i, true, f
	l.ideal = &i.BubblePct
	if l.closed && f != nil {
		f.close()
	}
	s.log.Debug("watching a run", "run", i.Name, "out", i.Out)
}

func (l *live) event(e troupe.Event) {
	step := 0
	l.mu.Lock()
	if l.last != nil {
		step = l.last.Step
	}
	switch e := e.(type) {
	case troupe.StepEvent:
		l.at, l.stalled = time.Now(), false
		l.ideal = &e.IdealBubblePct
		if e.Trace != nil {
			l.traced = &e
		}
		bare := e
		bare.Trace = nil
		l.last = &bare
		l.mu.Unlock()
		_ = l.records.Add(e.Record) // the page shows no metrics of a record with too many
		return
	case troupe.PauseEvent:
		l.paused = e.Paused
	case troupe.StallEvent:
		l.stalled = true
	}
	l.mu.Unlock()
	l.mark(e, step)
}

// mark adds an event that has words to the marks.
func (l *live) mark(e troupe.Event, step int) {
	if m, ok := event.MarkOf(e, step); ok {
		l.marks.add(mark{TimeMS: m.TimeMS, Step: int64(m.Step), Kind: m.Kind, Text: m.Text})
	}
}

func (l *live) end(result troupe.Result, err error) {
	if f := l.folder(); f != nil {
		f.now() // so that the files are complete when readers learn of the end
	}
	l.mu.Lock()
	l.over, l.result, l.err, l.stalled = true, result, err, false
	l.mu.Unlock()
	l.mark(troupe.EndEvent{Result: result, Err: err}, result.Step)
	close(l.ended)
}

// look makes the run record its actions for a while, because a page shows its pipeline.
func (l *live) look() {
	l.mu.Lock()
	due := !l.over && l.begun && time.Since(l.told) >= recordAgain
	if due {
		l.told = time.Now()
	}
	l.mu.Unlock()
	if due {
		l.run.Record(recordFor)
	}
}

// now returns the run's status, which all readers share.
func (l *live) now() (troupe.Status, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || !l.begun {
		return troupe.Status{}, false
	}
	if time.Since(l.statusAt) < statusEvery {
		return l.status, true
	}
	l.mu.Unlock()
	s := l.run.Status() // for a followed run this asks another process
	l.mu.Lock()
	l.status, l.statusAt = s, time.Now()
	return s, true
}

func (l *live) lastTraced() (*troupe.StepEvent, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.traced, l.traced != nil
}

func (l *live) describe(d *description) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.info
	if l.begun {
		d.Text, d.Steps, d.Schedule, d.Stages, d.Chunks, d.Microbatches, d.Ranks, d.Grid, d.Layout = i.Name, i.Steps, i.Schedule, i.Stages,
			i.Chunks, i.Microbatches, i.Ranks, i.Grid, i.Layout
		d.Model, d.Parameters, d.State = i.Family, i.Parameters, "running"
		d.Device = i.Kernels
		d.Step = max(d.Step, i.ResumedAt)
		if i.Samples {
			d.Unit = "samples"
		}
	}
	if l.last != nil {
		d.take(l.last.Record)
		d.Updated = l.at.UnixMilli()
	}
	d.IdealPct = l.ideal
	switch {
	case l.over && l.err != nil:
		d.State, d.Error = "failed", l.err.Error()
	case l.over && l.result.Stopped:
		d.State = "stopped"
	case l.over:
		d.State = "ended"
	case l.stalled:
		d.State = "stalled"
	case l.paused:
		d.State = "paused"
	}
}

// errOver means that a run has ended and takes no changes.
var errOver = errors.New("the run has ended")

// change requests a change of the run.
func (l *live) change(c troupe.Change) error {
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	if over {
		return errOver
	}
	return l.run.Change(c)
}

// statusView is a status in the page's form.
type statusView struct {
	TimeMS int64       `json:"time_ms"`
	Actors []actorView `json:"actors"`
	Chain  []string    `json:"chain"` // the chain of waits in words
	Links  []linkView  `json:"links"` // the same chain by actor
}

type actorView struct {
	Name  string  `json:"name"`
	Rank  int     `json:"rank"` // lane in the drawing; −1: none
	Step  int64   `json:"step"`
	Doing string  `json:"doing"`
	Text  string  `json:"text"`
	From  string  `json:"from,omitempty"`
	Since float64 `json:"since_s"`
	Host  string  `json:"host,omitempty"`
	Heard float64 `json:"heard_s,omitempty"` // seconds since the last report of its process
	Chunk int     `json:"chunk"`
	Type  int     `json:"type"`
	Micro int     `json:"microbatch"`
}

type linkView struct {
	Rank  int    `json:"rank"`
	Actor string `json:"actor"`
	Root  bool   `json:"root"`
}

// silence is the time without a report after which a process may be the cause of a wait.
const silence = time.Second

func viewStatus(s troupe.Status, cfg *config.Config) statusView {
	v := statusView{TimeMS: clock.At(s.Time).UnixMilli(), Actors: []actorView{}, Chain: s.Chain(), Links: []linkView{}}
	byName := make(map[string]event.Snapshot, len(s.Actors))
	ranks := 0
	for _, a := range s.Actors {
		byName[a.Actor] = a
		ranks = max(ranks, a.Rank+1)
	}
	lanes := stagesOf(cfg, ranks)
	for _, a := range s.Actors {
		one := actorView{Name: a.Actor, Rank: a.Rank, Step: a.Step, Doing: a.Doing.String(), Text: a.Describe(), From: a.From,
			Since: s.Time.Sub(a.Since).Seconds(), Host: a.Host,
			Chunk: -1, Micro: -1}
		if a.Doing == event.Running || a.Action != (scheduler.Action{}) {
			one.Chunk, one.Type, one.Micro = int(a.Action.Chunk), int(a.Action.Type), int(a.Action.Microbatch)
		}
		if a.Rank >= 0 {
			one.Rank = lanes[a.Rank]
		}
		if !a.Heard.IsZero() {
			one.Heard = s.Time.Sub(a.Heard).Seconds()
		}
		v.Actors = append(v.Actors, one)
	}
	seen := make(map[string]bool)
	var silent event.Snapshot // the actor on the path whose process has been silent for longest
	for at, ok := byName["scheduler"]; ok && !seen[at.Actor]; at, ok = byName[at.From] {
		seen[at.Actor] = true
		if !at.Heard.IsZero() && (silent.Heard.IsZero() || at.Heard.Before(silent.Heard)) {
			silent = at
		}
		_, more := byName[at.From]
		v.Links = append(v.Links, linkView{stageOf(cfg, at.Rank, ranks), at.Actor, at.Wait == event.WaitNothing || !more})
		if at.Wait == event.WaitNothing {
			return v
		}
	}
	// If the waits form a cycle, the reported state of a silent process is stale.
	if quiet := s.Time.Sub(silent.Heard); !silent.Heard.IsZero() && quiet >= silence {
		v.Chain = append(v.Chain, fmt.Sprintf("%s, which runs %s, has not reported for %.1f s: its state above is that old, so check it first",
			silent.Host, silent.Actor, quiet.Seconds()))
		for i := range v.Links {
			v.Links[i].Root = v.Links[i].Actor == silent.Actor
		}
	}
	return v
}
