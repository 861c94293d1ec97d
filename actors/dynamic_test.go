package actors_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestDynamicOrders: with actions of random lengths, ranks leave their table's order;
// what they run is a table that can be run, within the bound, in the order of
// microbatches.
func TestDynamicOrders(t *testing.T) {
	for _, c := range []struct {
		spec  scheduler.Spec
		bound int
	}{
		{scheduler.Spec{Schedule: scheduler.OneFOneB, Ranks: 3, Chunks: 1, Microbatches: 8}, 4},
		{scheduler.Spec{Schedule: scheduler.ZBH1, Ranks: 3, Chunks: 1, Microbatches: 8}, 3},
		{scheduler.Spec{Schedule: scheduler.Interleaved, Ranks: 2, Chunks: 2, Microbatches: 6}, 5},
		{scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2, Microbatches: 8}, 4},
		{scheduler.Spec{Schedule: scheduler.VMin, Ranks: 3, Chunks: 2, Microbatches: 8}, 4},
		{scheduler.Spec{Schedule: scheduler.UShape, Ranks: 2, Chunks: 2, Microbatches: 6}, 4},
		{scheduler.Spec{Schedule: scheduler.GPipe, Ranks: 2, Chunks: 1, Microbatches: 8}, 1}, // far below the table's
	} {
		t.Run(c.spec.Schedule, func(t *testing.T) {
			table := generate(t, c.spec)
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(1, 2))
			l := &log{}
			spec := fakeRun{table: table, threads: 2, steps: 4, hook: func(list *tensorops.List, _ int, _ string, _, _ int) {
				mu.Lock()
				defer mu.Unlock()
				list.Spin(time.Duration(random.IntN(300)) * time.Microsecond)
			}}.spec(t, l)
			spec.MaxInFlight, spec.TraceEvery = c.bound, 1
			if out := wait(t, start(t, spec)); out.Err != nil {
				t.Fatal(out.Err)
			}
			steps := l.steps()
			if len(steps) != 4 {
				t.Fatalf("%d steps", len(steps))
			}
			for _, s := range steps {
				checkDynamic(t, table, c.bound, s)
			}
		})
	}
}

// checkDynamic holds a traced step against the table that it followed.
func checkDynamic(t *testing.T, table *scheduler.Table, bound int, s event.StepEvent) {
	t.Helper()
	ran := *table
	ran.Ranks = make([][]scheduler.Action, len(s.Trace))
	for r, row := range s.Trace {
		for _, a := range row {
			ran.Ranks[r] = append(ran.Ranks[r], a.Action)
		}
	}
	report, err := scheduler.Check(&ran)
	if err != nil {
		t.Fatalf("step %d: %v", s.Step, err)
	}
	if peak := slices.Max(report.PeakInFlight); peak > bound {
		t.Errorf("step %d: a rank holds %d, the bound is %d\n%s", s.Step, peak, bound, &ran)
	}
	if report.OutOfOrder.Any() {
		t.Errorf("step %d: weight gradients out of order\n%s", s.Step, &ran)
	}
}

// TestDynamicRefuses: a bound that no microbatch could pass under.
func TestDynamicRefuses(t *testing.T) {
	table := generate(t, scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2, Microbatches: 4})
	spec := fakeRun{table: table, threads: 1, steps: 1}.spec(t, &log{})
	spec.MaxInFlight = 1
	if _, err := actors.Start(spec); err == nil {
		t.Error("a rank with two stages may hold one output, and the run began")
	}
}
