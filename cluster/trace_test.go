package cluster_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry"
)

// TestTraceByOneClock: the times of a trace are by the coordinator's clock, whatever the workers' clocks show. No action ends
// before the action that it depends on, within the uncertainty of the clocks.
func TestTraceByOneClock(t *testing.T) {
	ahead := map[string]time.Duration{"worker-0": -3 * time.Second, "worker-1": 5 * time.Second}
	g := newGroup(t, new(group))
	place := g.line.place()
	for name, by := range ahead {
		s := g.workerSettings(name)
		s.Ahead = by
		g.start(t, "worker", s, g.token(t, 3600))
	}
	for name := range ahead {
		g.await(t, name+" to join", place, patience, joined(name))
	}
	out := filepath.Join(t.TempDir(), "out")
	g.train(t, command{Config: smallRun, Workers: 2, Sets: keys(t, out, []string{"pipeline.stages=2", "run.trace_every=1",
		"cluster.place=[\"worker-0\",\"worker-1\"]"})})

	path := filepath.Join(out, "trace.jsonl")
	_, steps, err := telemetry.ReadTrace(path, -1)
	if err != nil || len(steps) != 6 {
		t.Fatalf("traces of the steps %v: %v", steps, err)
	}
	for _, step := range steps {
		trace, _, err := telemetry.ReadTrace(path, step)
		if err != nil {
			t.Fatal(err)
		}
		inOrder(t, trace, ahead)
	}
}

// inOrder checks the order of a trace of two ranks, whose workers' clocks are wrong by known amounts.
func inOrder(t *testing.T, trace telemetry.Trace, ahead map[string]time.Duration) {
	t.Helper()
	if len(trace.Clocks) != 2 {
		t.Fatalf("step %d: clocks %+v, want two", trace.Step, trace.Clocks)
	}
	within := 0.001 // for the rounding to nanoseconds
	for r, c := range trace.Clocks {
		if want := fmt.Sprintf("worker-%d", r); c.Host != want || c.UncertaintyMS <= 0 {
			t.Fatalf("step %d: the clock of rank %d is %+v, want one of %s", trace.Step, r, c, want)
		}
		if off := math.Abs(c.OffsetMS - ahead[c.Host].Seconds()*1000); off > c.UncertaintyMS+0.001 {
			t.Errorf("step %d: %+v, which is %.3f ms off", trace.Step, c, off)
		}
		within += c.UncertaintyMS
	}
	t.Logf("step %d: %+v", trace.Step, trace.Clocks)
	table, err := scheduler.ReadCSV("trace", trace.Table)
	if err != nil {
		t.Fatal(err)
	}
	times := make(map[scheduler.Action][2]float64)
	for r, row := range table.Ranks {
		for i, a := range row {
			times[scheduler.Action{Chunk: a.Chunk, Type: a.Type, Microbatch: a.Microbatch}] = trace.MS[r][i]
		}
	}
	pairs := 0
	for a, at := range times {
		fed := a
		switch {
		case a.Type == scheduler.F && a.Chunk == 1:
			fed.Chunk = 0
		case a.Type == scheduler.B && a.Chunk == 0:
			fed.Chunk = 1
		default:
			continue
		}
		pairs++
		if by, ok := times[fed]; !ok || at[0] < by[1]-within {
			t.Errorf("step %d: %v begins at %.3f ms, %v, which fed it, ends at %.3f (%v); the clocks are known within %.3f ms", trace.Step, a, at[0],
				fed, by[1], ok, within)
		}
	}
	if pairs != 16 {
		t.Errorf("step %d: %d pairs, want 16", trace.Step, pairs)
	}
}
