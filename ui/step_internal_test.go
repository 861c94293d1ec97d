package ui

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// traceOf is a table played by the simulator, as a run would have recorded it.
func traceOf(t *scheduler.Table, tl *scheduler.Timeline) telemetry.Trace {
	trace := telemetry.Trace{Step: 3, Schedule: t.Schedule, Table: t.CSV(), ChunkFLOPs: make([]float64, t.NumChunks)}
	for r := range tl.Start {
		var row [][2]float64
		for i := range tl.Start[r] {
			row = append(row, [2]float64{tl.Start[r][i], tl.End[r][i]})
		}
		trace.MS = append(trace.MS, row)
	}
	return trace
}

// TestPicture: of any table what is sent has every action with its times, gaps and actions fill each
// rank's time, and a live run's step is drawn as a recorded one.
func TestPicture(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spec := scheduler.Spec{Schedule: rapid.SampledFrom([]string{scheduler.GPipe, scheduler.OneFOneB, scheduler.Interleaved, scheduler.ZBH1, scheduler.ZBV, scheduler.UShape, scheduler.DualPipeV}).Draw(t, "schedule"),
			Ranks: rapid.IntRange(2, 5).Draw(t, "ranks"), Microbatches: 10 * rapid.IntRange(1, 2).Draw(t, "microbatches")}
		switch spec.Chunks = 1; spec.Schedule {
		case scheduler.Interleaved:
			spec.Chunks, spec.Microbatches = 2, spec.Ranks*2
		case scheduler.ZBV, scheduler.UShape, scheduler.DualPipeV:
			spec.Chunks = 2
		}
		table, err := scheduler.Generate(spec)
		if err != nil {
			t.Skip(err)
		}
		m := scheduler.Machine{Costs: scheduler.Jittered(scheduler.UnitCosts, 0.4, rapid.Uint64().Draw(t, "seed")), Link: func(_, _ int) float64 { return 0.1 }}
		tl, err := m.Simulate(table)
		if err != nil {
			t.Fatal(err)
		}
		trace := traceOf(table, tl)
		measured, err := fromTrace("test", trace)
		if err != nil {
			t.Fatal(err)
		}
		measured.stepMS = tl.Makespan + 1
		p, err := measured.draw()
		if err != nil {
			t.Fatal(err)
		}
		head, start, end := unpack(t, p.bytes)
		if head.Planned == 0 || head.Note != "" {
			t.Errorf("there is no plan: %s", head.Note)
		}
		at := 0
		for r, row := range trace.MS {
			var idle float64
			for _, ms := range head.Sums[r] {
				idle += ms
			}
			if all := idle + head.Busy[r]; math.Abs(all-head.StepMS) > 1e-6*head.StepMS {
				t.Errorf("rank %d works and waits for %g of %g ms", r, all, head.StepMS)
			}
			if head.Counts[r] != len(row) {
				t.Fatalf("rank %d has %d actions, not %d", r, head.Counts[r], len(row))
			}
			for _, times := range row {
				if float32(times[0]) != start[at] || float32(times[1]) != end[at] {
					t.Fatalf("action %d runs from %g to %g, not %v", at, start[at], end[at], times)
				}
				at++
			}
		}

		began := time.Unix(1000, 0)
		live := make([][]event.ActionTime, len(trace.MS))
		for r, row := range table.Ranks {
			for i, a := range row {
				when := func(ms float64) time.Time { return began.Add(time.Duration(ms * float64(time.Millisecond))) }
				live[r] = append(live[r], event.ActionTime{Action: a, Start: when(tl.Start[r][i]), End: when(tl.End[r][i])})
			}
		}
		now, err := fromEvent(3, live, nil, nil, spec.Schedule)
		if err != nil {
			t.Fatal(err)
		}
		for c := range table.NumChunks {
			if now.table.RankOf(c) != table.RankOf(c) {
				t.Errorf("chunk %d is on rank %d, not %d", c, now.table.RankOf(c), table.RankOf(c))
			}
		}
		if now.unplaced || now.table.Microbatches != table.Microbatches {
			t.Errorf("a live step's table is %+v with %d microbatches, not as %+v with %d", now.table.Placement, now.table.Microbatches, table.Placement, table.Microbatches)
		}
		if _, err := now.draw(); err != nil {
			t.Error(err)
		}
	})
}

// unpack reads what encode has written, as far as the times.
func unpack(t interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}, b []byte) (h header, start, end []float32) {
	if len(b) < 8 || string(b[:4]) != "TRP1" {
		t.Fatalf("%.20q", b)
	}
	n := int(binary.LittleEndian.Uint32(b[4:]))
	if err := json.Unmarshal(b[8:8+n], &h); err != nil {
		t.Fatal(err)
	}
	b = b[8+n:]
	actions := 0
	for _, c := range h.Counts {
		actions += c
	}
	want := actions * (8 + 8 + 2)
	if h.Planned > 0 {
		want += 8 * actions
	}
	want = (want + 3) &^ 3
	if want += h.Gaps * 26; len(b) != want {
		t.Fatalf("%d bytes behind the header, not %d", len(b), want)
	}
	floats := func(at int) (all []float32) {
		for i := range actions {
			all = append(all, math.Float32frombits(binary.LittleEndian.Uint32(b[4*(at+i):])))
		}
		return all
	}
	return h, floats(0), floats(actions)
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
	text, _ := json.Marshal(traceOf(table, tl))
	f.Add(text)
	f.Add([]byte(`{"step":1,"table":"0F0\n","ms":[[[0,1e308]]],"skips":[[0,9]],"clocks":[{"host":"a"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		_, _ = stepOf(line)
		var trace telemetry.Trace
		if json.Unmarshal(line, &trace) != nil {
			return
		}
		m, err := fromTrace("fuzz", trace)
		if err != nil {
			return
		}
		p, err := m.draw()
		if err == nil && !slices.Equal(p.bytes[:4], []byte("TRP1")) {
			t.Errorf("%.10q", p.bytes)
		}
	})
}

// FuzzTail: lines come whole, once, and in order, however the file grows and in whatever parts it is read.
func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nbc\n\nd"), uint8(2), uint8(1))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte, cut, parts uint8) {
		if len(text) > 1<<12 {
			return
		}
		path := filepath.Join(dir, "file")
		at := min(len(text), int(cut))
		if err := os.WriteFile(path, text[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		fsys, err := folder.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = fsys.Close() }()
		tail := newTail(fsys, "file", 1<<20)
		tail.parts = int(parts) + 1
		var got []byte
		read := func() {
			if err := tail.read(func() { got = nil }, func(_ int64, line []byte) error {
				got = append(append(got, line...), '\n')
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		read()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = file.Write(text[at:])
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		read()
		want := text[:len(text)-len(text[lastBreak(text):])]
		if string(got) != string(want) {
			t.Errorf("%q comes as %q", text, got)
		}
	})
}

func lastBreak(text []byte) int {
	for i := len(text); i > 0; i-- {
		if text[i-1] == '\n' {
			return i
		}
	}
	return 0
}
