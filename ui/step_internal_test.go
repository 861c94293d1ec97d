package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/internal/show/draw"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestLiveStep: a live run's step is drawn as a recorded one.
func TestLiveStep(t *testing.T) {
	table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 4, Chunks: 2, Microbatches: 8})
	if err != nil {
		t.Fatal(err)
	}
	tl, err := scheduler.Simulate(table, scheduler.UnitCosts)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Unix(1000, 0)
	when := func(ms float64) time.Time { return began.Add(time.Duration(ms * float64(time.Millisecond))) }
	e := &event.StepEvent{Record: telemetry.Record{Step: 3}, Trace: make([][]event.ActionTime, len(table.Ranks))}
	for r, row := range table.Ranks {
		for i, a := range row {
			e.Trace[r] = append(e.Trace[r], event.ActionTime{Action: a, Start: when(tl.Start[r][i]), End: when(tl.End[r][i])})
		}
	}
	now, err := liveStep(e, nil, table.Schedule)
	if err != nil {
		t.Fatal(err)
	}
	recorded := telemetry.TraceOf(now, make([]float64, table.NumChunks), 1)
	read, err := recorded.Measured("test")
	if err != nil {
		t.Fatal(err)
	}
	var drawn [2][]byte
	for i, s := range []*scheduler.Step{now, read} {
		d, err := draw.ForBrowser(s)
		if err != nil {
			t.Fatal(err)
		}
		drawn[i] = d.Bytes
	}
	if !bytes.Equal(drawn[0], drawn[1]) {
		t.Error("they differ")
	}
	if _, err := liveStep(&event.StepEvent{Trace: make([][]event.ActionTime, 2)}, nil, ""); !errors.Is(err, errNoTrace) {
		t.Errorf("nothing was recorded: %v", err)
	}
}

// FuzzTrace: no line of a trace.jsonl does worse than to be refused.
func FuzzTrace(f *testing.F) {
	table, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 2, Chunks: 1, Microbatches: 2})
	if err != nil {
		f.Fatal(err)
	}
	tl, err := scheduler.Simulate(table, scheduler.UnitCosts)
	if err != nil {
		f.Fatal(err)
	}
	text, _ := json.Marshal(telemetry.TraceOf(scheduler.StepOf(table, tl), make([]float64, table.NumChunks), 1))
	f.Add(text)
	f.Add([]byte(`{"step":1,"table":"0F0\n","ms":[[[0,1e308]]],"chunk_flops":[1],"skips":[[0,9]],"clocks":[{"host":"a"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var trace telemetry.Trace
		if json.Unmarshal(line, &trace) != nil {
			return
		}
		s, err := trace.Measured("fuzz")
		if err != nil {
			return
		}
		d, err := draw.ForBrowser(s)
		if err == nil && !bytes.Equal(d.Bytes[:4], []byte("TRP1")) {
			t.Errorf("%.10q", d.Bytes)
		}
	})
}
