package view

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// strip holds the last actions of a rank.
type strip struct {
	spans []span              // finished, in order
	now   []troupe.ActionTime // recorded actions of the current step
	runs  span                // the running action at the last status; kind 0: none
	exact bool                // spans are recorded; false: they come from status queries
}

// span is one activity of a rank.
type span struct {
	kind       byte // F, B, I, W or U, an update
	microbatch int32
	start, end time.Time
}

// keep adds the recorded actions of a finished step.
func (s *strip) keep(times []troupe.ActionTime) {
	if !s.exact {
		s.spans, s.exact = nil, true
	}
	for _, t := range times {
		s.add(spanOf(t))
	}
	s.now = nil
}

func spanOf(t troupe.ActionTime) span {
	return span{t.Action.Type.String()[0], t.Action.Microbatch, t.Start, t.End}
}

func (s *strip) add(x span) {
	if n := len(s.spans); n > 0 && x.start.Before(s.spans[n-1].start) {
		return // already known, or the second half of a pair
	}
	if len(s.spans) >= maxSpans {
		s.spans = append(s.spans[:0], s.spans[maxSpans/2:]...)
	}
	s.spans = append(s.spans, x)
}

// observe adds the status of a rank whose actions are not recorded.
func (s *strip) observe(a event.Snapshot, at time.Time) {
	var kind byte
	s.runs = span{}
	switch a.Doing {
	case event.Running:
		kind = a.Action.Type.String()[0]
	case event.Updating, event.Reducing:
		kind = 'U'
	default:
		return
	}
	s.runs = span{kind, a.Action.Microbatch, a.Since, at}
	if s.exact {
		return
	}
	if n := len(s.spans); n > 0 {
		if last := &s.spans[n-1]; last.start.Equal(a.Since) && last.kind == kind {
			last.end = at
			return
		}
	}
	s.add(span{kind, a.Action.Microbatch, a.Since, at})
}

// latest returns the end of the last known action.
func (s *strip) latest() (t time.Time) {
	if n := len(s.now); n > 0 {
		return s.now[n-1].End
	}
	if n := len(s.spans); n > 0 {
		return s.spans[n-1].end
	}
	return t
}

// draw draws the range of time in a number of columns: a letter for each action, with its microbatch if there is
// room, and dots for idle time.
func (s *strip) draw(from, to time.Time, columns int, fill byte) []byte {
	row := make([]byte, columns)
	for i := range row {
		row[i] = '.'
	}
	whole := to.Sub(from)
	if whole <= 0 {
		return row
	}
	at := func(t time.Time) int { return int(float64(columns) * float64(t.Sub(from)) / float64(whole)) }
	paint := func(x span) {
		if !x.end.After(from) || !x.start.Before(to) {
			return
		}
		first, last := max(0, at(x.start)), min(columns-1, at(x.end.Add(-1)))
		label := string(x.kind)
		if x.kind != 'U' {
			label += fmt.Sprint(x.microbatch)
		}
		if len(label) > last-first {
			label = label[:1]
		}
		for c := first; c <= last; c++ {
			switch {
			case c-first < len(label):
				row[c] = label[c-first]
			default:
				row[c] = fill
			}
		}
	}
	for _, x := range s.spans {
		paint(x)
	}
	for _, t := range s.now {
		paint(spanOf(t))
	}
	if s.runs.kind != 0 {
		paint(s.runs)
	}
	return row
}
