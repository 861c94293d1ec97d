package actors_test

import (
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
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
			clock := &fixedTimes{unit: unit, next: make([]time.Duration, s.Ranks)}
			spec := fakeRun{table: table, threads: s.Ranks, steps: int64(b.N) + 1, hook: clock.recorded}.spec(b, l)
			spec.Device = fixedDevice{spec.Device, clock, new(int)}
			spec.TraceEvery, spec.WriteCheckpoint = 1, nil
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
			slices.Sort(all)
			measured, simulated := all[len(all)/2], tl.Makespan*float64(unit)/float64(time.Millisecond)
			b.ReportMetric(measured, "measured_ms")
			b.ReportMetric(measured/simulated, "by_simulated")
			chunks := float64(table.NumStages) / float64(p) // as many times 1f1b's work
			b.ReportMetric(tl.Makespan/(float64(3*s.Microbatches+3*(p-1))*chunks), "simulated_by_1f1b")
			b.ReportMetric(0, "ns/op")
		})
	}
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
