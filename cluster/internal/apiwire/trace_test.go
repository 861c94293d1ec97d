package apiwire

import (
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestTraceOverTheWire: a step's trace arrives unchanged, with pairs and clocks. One that is too large is not sent.
func TestTraceOverTheWire(t *testing.T) {
	at := time.Unix(1764000000, 123456789)
	act := func(chunk int32, kind scheduler.Type, m int32, overlap bool, from, to time.Duration) event.ActionTime {
		return event.ActionTime{Action: scheduler.Action{Chunk: chunk, Type: kind, Microbatch: m, Overlap: overlap}, Start: at.Add(from),
			End: at.Add(to)}
	}
	e := troupe.StepEvent{Record: telemetry.Record{Step: 7}, Trace: [][]event.ActionTime{
		{act(0, scheduler.F, 0, true, 0, 5), act(3, scheduler.B, 1, false, 0, 5), act(0, scheduler.W, 200, false, -7, time.Second)}, nil},
		Clocks: []event.Clock{{}, {Process: "worker-1", Ahead: -time.Second, Within: time.Millisecond}}}
	e.Trace[0][1].Parts = []scheduler.PartTime{{Start: at, End: at.Add(2), Exchange: scheduler.BD, Sent: at.Add(1), Came: at.Add(4)},
		{Start: at.Add(4), End: at.Add(5)}}
	w := PackStep(e)
	if w.Trace != nil {
		t.Error("everybody gets the trace")
	}
	w.Trace = PackTrace(e)
	got, err := UnpackEvent(&wire.RunEvent{Kind: &wire.RunEvent_Step{Step: w}})
	if err != nil {
		t.Fatal(err)
	}
	back := got.(troupe.StepEvent)
	if len(back.Trace) != 2 || len(back.Trace[0]) != 3 || len(back.Trace[1]) != 0 || len(back.Clocks) != 2 || back.Clocks[1] != e.Clocks[1] {
		t.Fatalf("%+v", back)
	}
	for i, a := range e.Trace[0] {
		if b := back.Trace[0][i]; a.Action != b.Action || !a.Start.Equal(b.Start) || !a.End.Equal(b.End) {
			t.Errorf("%+v came as %+v", a, b)
		}
		for k, p := range a.Parts {
			if len(back.Trace[0][i].Parts) != len(a.Parts) {
				t.Fatalf("%+v came as %+v", a, back.Trace[0][i])
			}
			if q := back.Trace[0][i].Parts[k]; p.Exchange != q.Exchange || !p.Start.Equal(q.Start) || !p.End.Equal(q.End) ||
				!p.Sent.Equal(q.Sent) || !p.Came.Equal(q.Came) {
				t.Errorf("%+v came as %+v", p, q)
			}
		}
		if len(a.Parts) == 0 && back.Trace[0][i].Parts != nil {
			t.Errorf("%+v came as %+v", a, back.Trace[0][i])
		}
	}
	most := LimitTraceActions - 3 - 2 // beside the others and the parts
	e.Trace[1] = make([]event.ActionTime, most)
	if PackTrace(e) == nil {
		t.Error("a trace of the largest size is not sent")
	}
	e.Trace[1] = make([]event.ActionTime, most+1)
	if PackTrace(e) != nil {
		t.Error("a trace of any size is sent")
	}
}

// TestBadActions: invalid actions are refused, and so are too many.
func TestBadActions(t *testing.T) {
	ok := func() *wire.ActionTimes {
		return &wire.ActionTimes{Chunks: []int32{0, 1}, Types: []byte{1, 4}, Microbatches: []int32{0, 0}, StartsNs: []int64{5, 6},
			TookNs: []int64{1, 2}}
	}
	if times, err := actors.UnpackActions(ok(), 2); err != nil || len(times) != 2 {
		t.Fatal(times, err)
	}
	for name, change := range map[string]func(*wire.ActionTimes){
		"types":       func(w *wire.ActionTimes) { w.Types = w.Types[:1] },
		"microbatch":  func(w *wire.ActionTimes) { w.Microbatches[1] = -1 },
		"chunk":       func(w *wire.ActionTimes) { w.Chunks[0] = -1 },
		"type":        func(w *wire.ActionTimes) { w.Types[0] = 5 },
		"starts":      func(w *wire.ActionTimes) { w.StartsNs = nil },
		"ends":        func(w *wire.ActionTimes) { w.TookNs = append(w.TookNs, 1) },
		"no type":     func(w *wire.ActionTimes) { w.Types[1] = 128 },
		"microbatchs": func(w *wire.ActionTimes) { w.Microbatches = nil },
	} {
		w := ok()
		change(w)
		if _, err := actors.UnpackActions(w, 2); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := actors.UnpackActions(ok(), 1); err == nil {
		t.Error("more than there can be: accepted")
	}
}

// TestBadParts: times of parts that belong to no action, or are not those of parts, are refused, and so are too many.
func TestBadParts(t *testing.T) {
	ok := func() *wire.ActionTimes {
		return &wire.ActionTimes{Chunks: []int32{0, 1}, Types: []byte{1, 4}, Microbatches: []int32{0, 0}, StartsNs: []int64{5, 6},
			TookNs: []int64{1, 2}, Parts: []int32{2, 0}, Exchanges: []byte{byte(scheduler.FD), 0}, PartNs: []int64{0, 1, 1, 1, 1, 1}}
	}
	if times, err := actors.UnpackActions(ok(), 4); err != nil || len(times) != 2 || len(times[0].Parts) != 2 || times[1].Parts != nil {
		t.Fatal(times, err)
	}
	for name, change := range map[string]func(*wire.ActionTimes){
		"of one action":          func(w *wire.ActionTimes) { w.Parts = w.Parts[:1] },
		"less than none":         func(w *wire.ActionTimes) { w.Parts[0] = -1 },
		"more than there are":    func(w *wire.ActionTimes) { w.Parts[0] = 3 },
		"of no action":           func(w *wire.ActionTimes) { w.Parts = nil },
		"left over":              func(w *wire.ActionTimes) { w.Parts[0] = 0 },
		"no exchange":            func(w *wire.ActionTimes) { w.Exchanges[0] = 0 },
		"an action between":      func(w *wire.ActionTimes) { w.Exchanges[0] = byte(scheduler.F) },
		"an exchange at the end": func(w *wire.ActionTimes) { w.Exchanges[1] = byte(scheduler.FC) },
		"too few times":          func(w *wire.ActionTimes) { w.PartNs = w.PartNs[:5] },
		"too many times":         func(w *wire.ActionTimes) { w.PartNs = append(w.PartNs, 1) },
	} {
		w := ok()
		change(w)
		if _, err := actors.UnpackActions(w, 4); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := actors.UnpackActions(ok(), 3); err == nil {
		t.Error("more than there can be: accepted")
	}
}
