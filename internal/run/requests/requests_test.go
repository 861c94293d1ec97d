package requests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestRequests: what the next attempt is given, after what was asked and what the last one told.
func TestRequests(t *testing.T) {
	pause, resume, stop, save := event.Change{Kind: event.ChangePause}, event.Change{Kind: event.ChangeResume},
		event.Change{Kind: event.ChangeStop}, event.Change{Kind: event.ChangeCheckpoint}
	at := func(c event.Change, step int64) event.Change { c.Step = step; return c }
	rate := func(lr float64) event.Change { return event.Change{Kind: event.ChangeRate, LR: lr} }
	done := func(id uint64) actors.RequestEvent { return actors.RequestEvent{ID: id, Done: true} }
	noted := func(id uint64, step int64) actors.RequestEvent { return actors.RequestEvent{ID: id, Step: step} }
	for _, tt := range []struct {
		name  string
		asked []any // a Change, a RequestEvent, or an int64: an attempt resumes at that step
		start int64
		want  []event.Change
	}{
		{"a pause stays", []any{pause}, 5, []event.Change{pause}},
		{"and is there once", []any{pause, pause, int64(3), pause}, 5, []event.Change{pause}},
		{"until the run is resumed", []any{pause, int64(3), resume, done(2)}, 5, nil},
		{"which is kept until it is heard", []any{pause, int64(3), resume}, 5, []event.Change{resume}},
		{"a pause after a resumption", []any{pause, resume, pause}, 5, []event.Change{resume, pause}},
		{"a stop stays", []any{stop, int64(3), int64(4)}, 4, []event.Change{stop}},
		{"a checkpoint until it is written", []any{save, int64(3), save}, 4, []event.Change{save}},
		{"it is written", []any{save, int64(3), done(1)}, 4, nil},
		{"another while it is being written", []any{save, save, done(1)}, 4, []event.Change{save}},
		{"both are", []any{save, save, done(1), done(2)}, 4, nil},
		{"another is not", []any{save, int64(3), done(1), save}, 4, []event.Change{save}},
		{"a rate until the journal has it", []any{rate(1), int64(3), rate(2)}, 4, []event.Change{rate(1), rate(2)}},
		{"it has", []any{rate(1), int64(3), done(1)}, 4, nil},
		{"the last of those that nobody heard of", []any{rate(1), rate(2), int64(3), rate(3), rate(4)}, 4, []event.Change{rate(2), rate(4)}},
		{"rates of steps", []any{at(rate(1), 7), at(rate(2), 7)}, 4, []event.Change{at(rate(1), 7), at(rate(2), 7)}},
		{"the journal has a pause at a step", []any{at(pause, 9), int64(3), noted(1, 9)}, 4, nil},
		{"which has ended", []any{at(pause, 9), int64(3), noted(1, 9)}, 9, []event.Change{pause}},
		{"one that is not journalled", []any{at(stop, 9), int64(3)}, 4, []event.Change{at(stop, 9)}},
		{"a stop at a step that has ended", []any{at(stop, 9), int64(3), noted(1, 9)}, 9, []event.Change{stop}},
		{"a checkpoint of a step that is there", []any{at(save, 9), int64(3), noted(1, 9)}, 9, nil},
		{"a checkpoint of a step to come", []any{at(save, 9), int64(3)}, 4, []event.Change{at(save, 9)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var q Open
			for _, a := range tt.asked {
				switch a := a.(type) {
				case event.Change:
					if _, err := q.Add(a); err != nil {
						t.Fatal(err)
					}
				case actors.RequestEvent:
					q.Event(a)
				case int64:
					q.Begin(a)
				}
			}
			var got []event.Change
			for _, r := range q.Begin(tt.start) {
				got = append(got, r.Change)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if late := q.Late(); len(late) > 0 {
				t.Errorf("%v are given twice", late)
			}
		})
	}
}

// TestRequestsLimit: what names a step is refused at the limit, what names none never is.
func TestRequestsLimit(t *testing.T) {
	var q Open
	for step := range int64(Limit) {
		if _, err := q.Add(event.Change{Kind: event.ChangePause, Step: step + 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := q.Add(event.Change{Kind: event.ChangeStop, Step: 5}); err == nil {
		t.Error("one more is taken")
	}
	for _, kind := range []event.ChangeKind{event.ChangeStop, event.ChangeCheckpoint, event.ChangePause, event.ChangeResume} {
		if _, err := q.Add(event.Change{Kind: kind}); err != nil {
			t.Errorf("%v: %v", kind, err)
		}
	}
	if !q.Stops(0) || len(q.open) > 4 {
		t.Error(fmt.Sprint(q.open))
	}
}
