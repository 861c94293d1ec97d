package event_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// partsAt are the times of parts of an action, each a millisecond long, whose exchanges begin with their last half and take as long
// as a part.
func partsAt(starts []float64, exchanges ...scheduler.Type) (parts []scheduler.PartTime) {
	for i, start := range starts {
		p := scheduler.PartTime{Start: at(start), End: at(start + 1)}
		if i < len(exchanges) {
			p.Exchange, p.Sent, p.Came = exchanges[i], at(start+0.5), at(start+1.5)
		}
		parts = append(parts, p)
	}
	return parts
}

// TestTimedParts: a step whose parts were timed has a table in parts, in the order in which they ran, that can run. Steps without parts
// stay whole.
func TestTimedParts(t *testing.T) {
	action := func(typ scheduler.Type, microbatch int32, overlap bool, from, to float64, parts []scheduler.PartTime) event.ActionTime {
		return event.ActionTime{Action: scheduler.Action{Type: typ, Microbatch: microbatch, Overlap: overlap}, Start: at(from), End: at(to),
			Parts: parts}
	}
	row := []event.ActionTime{
		action(scheduler.F, 0, false, 0, 4, partsAt([]float64{0, 1.5, 3}, scheduler.FD, scheduler.FC)),
		action(scheduler.F, 1, true, 5, 11, partsAt([]float64{5, 7, 8}, scheduler.FD, scheduler.FC)),
		action(scheduler.B, 0, false, 5, 11, partsAt([]float64{6, 9, 10}, scheduler.BD, scheduler.BC)),
		action(scheduler.B, 1, false, 12, 13, nil),
	}
	s := event.Timed("own", [][]event.ActionTime{row}, nil)
	const want = "(0F0.1;0FD0.1;0F0.2;0FC0.2;0F0.3)OVERLAP_F_B " +
		"(0F1.1;0FD1.1;0B0.1;0BD0.1;0F1.2;0FC1.2;0F1.3;0B0.2;0BC0.2;0B0.3)OVERLAP_F_B 0B1"
	if got := s.Table.String(); got != want {
		t.Fatalf("%s\nwant %s", got, want)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	if _, err := scheduler.Check(s.Table); err != nil {
		t.Error(err)
	}
	for i, ms := range map[int][2]float64{0: {0, 1}, 1: {0.5, 1.5}, 4: {3, 4}, 8: {6.5, 7.5}, 14: {10, 11}, 15: {12, 13}} {
		if s.MS[0][i] != ms {
			t.Errorf("%v ran from %v, want %v", s.Table.Ranks[0][i], s.MS[0][i], ms)
		}
	}
	gaps, err := s.Idle()
	if err != nil {
		t.Fatal(err)
	}
	var idle []string
	for _, g := range gaps[0] {
		idle = append(idle, fmt.Sprintf("%v %.1f", g.Cause, g.Len()))
	}
	if got := strings.Join(idle, ", "); got != "waits for experts 0.5, waits for experts 0.5, starved of data 1.0, between actions 1.0" {
		t.Errorf("gaps: %s", got)
	}

	// The dispatch of the forward is still under way when that of the backward is sent, and what was sent last may come first.
	row[1].Parts[0].Came = at(6.75)
	for came, want := range map[float64][2]float64{8: {6.75, 8}, 6.6: {6.75, 6.75}} {
		row[2].Parts[0].Came = at(came)
		if s := event.Timed("own", [][]event.ActionTime{row}, nil); s.MS[0][6] != [2]float64{5.5, 6.75} || s.MS[0][8] != want {
			t.Errorf("%v, %v, want the second from %v", s.MS[0][6], s.MS[0][8], want)
		}
	}

	for name, change := range map[string]func(pair []event.ActionTime){
		"no parts":     func(pair []event.ActionTime) { pair[0].Parts, pair[1].Parts = nil, nil },
		"of one alone": func(pair []event.ActionTime) { pair[1].Parts = nil },
		"no exchange": func(pair []event.ActionTime) {
			pair[0].Parts, pair[1].Parts = partsAt([]float64{5}), partsAt([]float64{6})
		},
		"cut off": func(pair []event.ActionTime) { pair[0].Parts = pair[0].Parts[:2] },
		"two at the end": func(pair []event.ActionTime) {
			pair[0].Parts = partsAt([]float64{5, 7, 8}, scheduler.FD)
		},
	} {
		whole := append([]event.ActionTime(nil), row...)
		change(whole[1:3])
		s := event.Timed("own", [][]event.ActionTime{whole}, nil)
		if got := s.Table.String(); !strings.HasSuffix(got, " (0F1;0B0)OVERLAP_F_B 0B1") || s.Check() != nil {
			t.Errorf("%s: %s, %v", name, got, s.Check())
		}
	}
}

// TestMove: all times of an action move, and no others appear.
func TestMove(t *testing.T) {
	a := event.ActionTime{Start: at(1), End: at(2), Parts: partsAt([]float64{0, 1}, scheduler.FD)}
	a.Move(at(5).Sub(at(0)))
	if !a.Start.Equal(at(6)) || !a.End.Equal(at(7)) {
		t.Errorf("%+v", a)
	}
	if p := a.Parts[0]; !p.Start.Equal(at(5)) || !p.End.Equal(at(6)) || !p.Sent.Equal(at(5.5)) || !p.Came.Equal(at(6.5)) {
		t.Errorf("%+v", p)
	}
	if p := a.Parts[1]; !p.Start.Equal(at(6)) || !p.Sent.IsZero() || !p.Came.IsZero() {
		t.Errorf("%+v", p)
	}
}

// TestLatest: the last actions with at most so many parts.
func TestLatest(t *testing.T) {
	times := []event.ActionTime{{}, {Parts: make([]scheduler.PartTime, 3)}, {}, {}}
	if n := event.Size(times); n != 7 {
		t.Errorf("the size is %d", n)
	}
	for most, want := range []int{0, 1, 2, 2, 2, 2, 3, 4, 4} {
		if got := event.Latest(times, most); len(got) != want {
			t.Errorf("of at most %d: %d, want %d", most, len(got), want)
		}
	}
}
