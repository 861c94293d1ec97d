package actors_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// BenchmarkDispatcher compares the goroutines that stages may receive and record on: the
// sender's, or their mailbox's own. Each iteration is a pair of runs, one of either, the
// first by turns. Devices take 1 ms for each F, I and W and no core; recording an action
// takes a core for as long as the name says. Each figure is the median over the pairs of
// a run's median over its steps, but for that of the first step.
//
//	own_overhead_pct, sender_overhead_pct  (wall − makespan) / wall of a step's actions, as
//	                                       BenchmarkEngineOverhead has it
//	own_step_ms, sender_step_ms            from decision to decision
//	own_by_sender                          the median of the pairs' quotients of these
func BenchmarkDispatcher(b *testing.B) {
	for _, recording := range []time.Duration{0, 50 * time.Microsecond} {
		for _, ranks := range []int{2, 8, 16} {
			for _, schedule := range []string{scheduler.OneFOneB, scheduler.Interleaved, scheduler.ZBV} {
				b.Run(fmt.Sprintf("recording=%v/ranks=%d/%s", recording, ranks, schedule), func(b *testing.B) {
					table := generate(b, scheduler.Spec{Schedule: schedule, Ranks: ranks, Chunks: scheduler.DefaultChunks(schedule),
						Microbatches: 2 * ranks})
					one := func(onOwn bool) dispatched { return runDispatched(b, table, recording, onOwn) }
					var own, sender, quotients []dispatched
					for i := range b.N {
						var o, s dispatched
						if i%2 == 0 {
							o, s = one(true), one(false)
						} else {
							s, o = one(false), one(true)
						}
						own, sender = append(own, o), append(sender, s)
						quotients = append(quotients, dispatched{stepMS: o.stepMS / s.stepMS})
					}
					overhead := func(d dispatched) float64 { return d.overhead }
					step := func(d dispatched) float64 { return d.stepMS }
					b.ReportMetric(medianOf(own, overhead), "own_overhead_pct")
					b.ReportMetric(medianOf(sender, overhead), "sender_overhead_pct")
					b.ReportMetric(medianOf(own, step), "own_step_ms")
					b.ReportMetric(medianOf(sender, step), "sender_step_ms")
					b.ReportMetric(medianOf(quotients, step), "own_by_sender")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

// dispatched are the medians of a run's steps.
type dispatched struct{ overhead, stepMS float64 }

func medianOf[T any](of []T, what func(T) float64) float64 {
	all := make([]float64, 0, len(of))
	for _, x := range of {
		all = append(all, what(x))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func runDispatched(b *testing.B, table *scheduler.Table, recording time.Duration, onOwn bool) dispatched {
	const unit = time.Millisecond
	// About half a second, whatever the table.
	steps := int64(max(4, 250/len(table.Ranks[0])))
	ranks := table.NumRanks()
	times := &fixedTimes{unit: unit, next: make([]time.Duration, ranks)}
	hook := func(l *tensorops.List, rank int, what string, chunk, index int) {
		times.recorded(l, rank, what, chunk, index)
		for end := time.Now().Add(recording); time.Now().Before(end); {
			continue
		}
	}
	l := &log{}
	spec := fakeRun{table: table, threads: 1, steps: steps + 1, hook: hook, untied: true}.spec(b, l)
	spec.Device, spec.WriteCheckpoint, spec.TraceEvery = &virtualDevice{Device: spec.Device, times: times}, nil, 1
	if onOwn {
		spec.RunStagesOnOwn()
	}
	if out := wait(b, start(b, spec)); out.Err != nil {
		b.Fatal(out.Err)
	}
	checked, err := scheduler.Check(table)
	if err != nil {
		b.Fatal(err)
	}
	measured := l.steps()[1:] // the first step fills the pools
	return dispatched{
		overhead: medianOf(measured, func(s event.StepEvent) float64 {
			wall, makespan := wallAndMakespan(b, table, checked, s)
			return 100 * (wall - makespan) / wall
		}),
		stepMS: medianOf(measured, func(s event.StepEvent) float64 { return *s.StepMS }),
	}
}

// virtualDevice makes streams that end a list when its time is over and execute nothing.
// Unlike the CPU's they sleep at once, and spin for nothing. A run makes them in the order
// of its ranks.
type virtualDevice struct {
	tensorops.Device
	times *fixedTimes
	made  int
}

func (d *virtualDevice) NewStream(name string) tensorops.Stream {
	memory := tensorops.NewHostMemory(0)
	arena := memory.NewArena(name)
	s := &virtualStream{queue: tensorops.NewQueue(name, arena, nil), arena: arena, times: d.times, rank: d.made,
		ends: make(chan time.Time, tensorops.LimitStreamQueue), ended: make(chan struct{})}
	d.made++
	go s.run()
	return s
}

type virtualStream struct {
	queue *tensorops.Queue
	arena *tensorops.Pool
	times *fixedTimes
	rank  int
	ends  chan time.Time // of the lists in the queue
	ended chan struct{}
}

func (s *virtualStream) NewList() *tensorops.List { return s.queue.NewList() }
func (s *virtualStream) Arena() tensorops.Arena   { return s.arena }

func (s *virtualStream) Submit(l *tensorops.List, done func(error)) {
	s.ends <- time.Now().Add(s.times.next[s.rank])
	s.times.next[s.rank] = 0
	s.queue.Submit(l, done)
}

func (s *virtualStream) Close() {
	s.queue.Close(tensorops.ErrClosed)
	<-s.ended
}

func (s *virtualStream) run() { // ends with Close
	defer close(s.ended)
	for {
		sub, ok := s.queue.Wait()
		if !ok {
			s.queue.Drain()
			return
		}
		time.Sleep(time.Until(<-s.ends))
		s.queue.Finish(sub, nil)
	}
}
