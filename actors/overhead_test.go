package actors_test

import (
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// BenchmarkEngineOverhead measures the engine's own time: actions that keep a
// core busy for 1 ms, on as many cores as ranks. Each figure is the median over
// the steps, so that what else the machine does now and then is not counted.
//
//	overhead_pct  (wall − makespan) / wall, where wall is from the first action's
//	              start to the last one's end, and the makespan that of the same
//	              table played with the measured times of the actions
//	between_pct   the same for the whole step: with the order, the norms, the
//	              decision and the update
//	nominal_pct   as overhead_pct, but with 1 ms for every action instead of the
//	              measured times, which include the way to the device and back
func BenchmarkEngineOverhead(b *testing.B) {
	const spin, m = time.Millisecond, 16
	for _, c := range []struct {
		name string
		spec scheduler.Spec
	}{
		{"1f1b", scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m}},
		{"interleaved", scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: m}},
	} {
		b.Run(c.name, func(b *testing.B) {
			table := generate(b, c.spec)
			l := &log{}
			spec := fakeRun{table: table, threads: 2, steps: int64(b.N) + 1, spin: spin}.spec(b, l)
			spec.TraceEvery, spec.WriteCheckpoint = 1, nil
			if out := wait(b, start(b, spec)); out.Err != nil {
				b.Fatal(out.Err)
			}
			report(b, table, l.steps()[1:], spin) // the first step fills the pools
		})
	}
}

// report compares the steps' times with the makespans of their table.
func report(b *testing.B, table *scheduler.Table, steps []event.StepEvent, spin time.Duration) {
	checked, err := scheduler.Check(table)
	if err != nil {
		b.Fatal(err)
	}
	nominal := makespanOf(b, table, checked, func(int, scheduler.Action) float64 { return float64(spin) })
	shares := make(map[string][]float64)
	share := func(name string, wall, ideal float64) {
		shares[name] = append(shares[name], 100*(wall-ideal)/wall)
	}
	for _, s := range steps {
		wall, measured := wallAndMakespan(b, table, checked, s)
		share("overhead_pct", wall, measured)
		share("between_pct", *s.StepMS*float64(time.Millisecond), measured)
		share("nominal_pct", wall, nominal)
	}
	for name, all := range shares {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
}

func makespanOf(b *testing.B, table *scheduler.Table, checked *scheduler.Report, costs scheduler.Costs) float64 {
	b.Helper()
	tl, err := scheduler.Machine{Costs: costs, Credits: &checked.Credits}.Simulate(table)
	if err != nil {
		b.Fatal(err)
	}
	return tl.Makespan
}

// wallAndMakespan are a traced step's time from its first action's start to its last one's
// end, and the makespan of the table with the measured times of its actions.
func wallAndMakespan(b *testing.B, table *scheduler.Table, checked *scheduler.Report, s event.StepEvent) (wall, makespan float64) {
	b.Helper()
	first, last := s.Trace[0][0].Start, s.Trace[0][0].End
	times := make(map[scheduler.Action]float64)
	for _, row := range s.Trace {
		for _, a := range row {
			times[a.Action] = float64(a.End.Sub(a.Start))
			if a.Start.Before(first) {
				first = a.Start
			}
			if a.End.After(last) {
				last = a.End
			}
		}
	}
	return float64(last.Sub(first)), makespanOf(b, table, checked, func(_ int, a scheduler.Action) float64 { return times[a] })
}
