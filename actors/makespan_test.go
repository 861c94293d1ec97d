package actors_test

import (
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// BenchmarkMakespan compares a step's makespan with the simulator's, on devices that
// take a fixed time for each action (25 ms for each F, I and W) and no core, so that
// ranks don't share any.
//
//	measured_ms        median over the steps, from the first action's start to the
//	                   last one's end
//	by_simulated       measured by simulated
//	simulated_by_1f1b  the same work under 1f1b, simulated, is 1
func BenchmarkMakespan(b *testing.B) {
	const unit, p = 25 * time.Millisecond, 4
	for _, name := range scheduler.Schedules() {
		s := scheduler.Spec{Schedule: name, Ranks: p, Chunks: scheduler.DefaultChunks(name), Microbatches: 3 * p}
		if name == scheduler.None {
			s.Ranks = 1
		}
		b.Run(name, func(b *testing.B) {
			table := generate(b, s)
			_, tl, err := scheduler.Analyse(table)
			if err != nil {
				b.Fatal(err)
			}
			l := &log{}
			spec := fixedRun(b, table, unit, int64(b.N)+1, l)
			spec.TraceEvery = 1
			if out := wait(b, start(b, spec)); out.Err != nil {
				b.Fatal(out.Err)
			}
			var all []float64
			for _, e := range l.steps()[1:] {
				first, last := e.Trace[0][0].Start, e.Trace[0][0].End
				for _, row := range e.Trace {
					for _, a := range row {
						if a.Start.Before(first) {
							first = a.Start
						}
						if a.End.After(last) {
							last = a.End
						}
					}
				}
				all = append(all, float64(last.Sub(first))/float64(time.Millisecond))
			}
			reportMedian(b, all, tl.Makespan*float64(unit)/float64(time.Millisecond))
			chunks := float64(table.NumChunks) / float64(p) // as many times 1f1b's work
			b.ReportMetric(tl.Makespan/(float64(3*s.Microbatches+3*(p-1))*chunks), "simulated_by_1f1b")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkPeriod compares the time from step to step with the simulator's, on the same
// devices: its period where steps begin ahead, the makespan where they wait for the
// optimizer.
//
//	measured_ms   median over the steps, from decision to decision
//	by_simulated  measured by simulated
func BenchmarkPeriod(b *testing.B) {
	const unit, p = 25 * time.Millisecond, 4
	for _, c := range []struct {
		name, schedule string
		postValidate   bool
	}{
		{"1f1b", scheduler.OneFOneB, false},
		{"1f1b,ahead", scheduler.OneFOneB, true},
		{"zb-h1,ahead", scheduler.ZBH1, true},
		{"zb-h2", scheduler.ZBH2, false},
		{"zb-h2,ahead", scheduler.ZBH2, true},
		{"zb-v", scheduler.ZBV, false},
		{"zb-v,ahead", scheduler.ZBV, true},
		{"v-half,ahead", scheduler.VHalf, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			table := generate(b, scheduler.Spec{Schedule: c.schedule, Ranks: p, Chunks: scheduler.DefaultChunks(c.schedule), Microbatches: 2 * p})
			machine := scheduler.Machine{Costs: scheduler.UnitCosts}
			tl, err := machine.Simulate(table)
			if err != nil {
				b.Fatal(err)
			}
			simulated := tl.Makespan
			if c.postValidate {
				if simulated, err = machine.SteadyStateStep(table); err != nil {
					b.Fatal(err)
				}
			}
			l := &log{}
			// The first update is predicted by a wrong number of targets, so that two steps
			// begin cold.
			const cold = 2
			spec := fixedRun(b, table, unit, int64(b.N)+cold, l)
			spec.PostValidate = c.postValidate
			if out := wait(b, start(b, spec)); out.Err != nil || c.postValidate &&
				out.Updates != (event.Updates{Kept: spec.Steps - cold, RolledBack: 1, Waited: 1}) {
				b.Fatalf("the run ends with %+v", out)
			}
			var all []float64
			for _, e := range l.steps()[cold:] {
				all = append(all, *e.StepMS)
			}
			reportMedian(b, all, simulated*float64(unit)/float64(time.Millisecond))
			b.ReportMetric(0, "ns/op")
		})
	}
}

// reportMedian reports the median of times in ms, and what it is by the simulated time.
func reportMedian(b *testing.B, all []float64, simulated float64) {
	slices.Sort(all)
	measured := all[len(all)/2]
	b.ReportMetric(measured, "measured_ms")
	b.ReportMetric(measured/simulated, "by_simulated")
}

// fixedRun is a run on devices that take a fixed time for each action.
func fixedRun(b *testing.B, table *scheduler.Table, unit time.Duration, steps int64, l *log) actors.Spec {
	ranks := table.NumRanks()
	clock := &fixedTimes{unit: unit, next: make([]time.Duration, ranks)}
	// A tied weight would hold its first rank up until the last has ended.
	spec := fakeRun{table: table, threads: ranks, steps: steps, hook: clock.recorded, untied: true}.spec(b, l)
	spec.Device, spec.WriteCheckpoint = fixedDevice{spec.Device, clock, new(int)}, nil
	return spec
}

// fixedTimes adds up, for each rank, how long the list takes that is being recorded.
type fixedTimes struct {
	unit time.Duration
	next []time.Duration // by rank; used by its actor alone
}

func (f *fixedTimes) recorded(_ *tensorops.List, rank int, what string, _, _ int) {
	switch what {
	case "F", "I", "W":
		f.next[rank] += f.unit
	case "B":
		f.next[rank] += 2 * f.unit
	}
}

// fixedDevice makes streams that end a list when its time is over. A run makes them in
// the order of its ranks.
type fixedDevice struct {
	tensorops.Device
	times *fixedTimes
	made  *int
}

func (d fixedDevice) NewStream(name string) tensorops.Stream {
	rank := *d.made
	*d.made++
	return fixedStream{d.Device.NewStream(name), d.times, rank}
}

type fixedStream struct {
	tensorops.Stream
	times *fixedTimes
	rank  int
}

func (s fixedStream) Submit(l *tensorops.List, done func(error)) {
	end := time.Now().Add(s.times.next[s.rank])
	s.times.next[s.rank] = 0
	s.Stream.Submit(l, func(err error) {
		time.Sleep(time.Until(end)) // the stream does nothing else meanwhile
		done(err)
	})
}

var _ actors.Compute = (*fake)(nil)
