package actors_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// stepper makes a run step by step: between steps it is paused. A step's data is
// held back until the request for the pause after it has reached the scheduler.
type stepper struct {
	actors.Source
	t    testing.TB
	run  *actors.Run
	l    *log
	read int64         // the last step whose data was asked for
	asks chan struct{} // a step asks for its data
	data chan struct{} // and may have it
	all  chan struct{} // closed: lets every step
	done int64         // steps
}

func (s *stepper) Train(step int64, index int, tokens, targets []int32) error {
	if step > s.read {
		s.read = step
		select {
		case s.asks <- struct{}{}:
			<-s.data
		case <-s.all:
		}
	}
	return s.Source.Train(step, index, tokens, targets)
}

// startPaused begins a run that pauses before its first step.
func startPaused(t testing.TB, spec actors.Spec, l *log) *stepper {
	t.Helper()
	s := &stepper{Source: spec.Data, t: t, l: l, asks: make(chan struct{}), data: make(chan struct{}), all: make(chan struct{})}
	spec.Data = s
	ready := holdStages(&spec)
	s.run = start(t, spec)
	s.run.Pause()
	s.settle()
	close(ready)
	s.paused()
	return s
}

// holdStages lets no stage be ready, so no step begins, until the returned channel is closed.
func holdStages(spec *actors.Spec) chan struct{} {
	ready, whole := make(chan struct{}), spec.Build
	spec.Build = func(rank int, st tensorops.Stream) (actors.Compute, error) {
		<-ready
		return whole(rank, st)
	}
	return ready
}

func (s *stepper) settle() {
	s.t.Helper()
	if err := s.run.Settle(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stepper) paused() {
	s.t.Helper()
	eventually(s.t, s.run, fmt.Sprintf("the pause after step %d", s.done), func() bool {
		p := eventsOf[event.PauseEvent](s.l)
		return len(p) > 0 && p[len(p)-1] == event.PauseEvent{Step: s.done, Paused: true}
	})
}

// step makes one step.
func (s *stepper) step() { s.steps(1) }

// steps makes n steps, with a pause after the last.
func (s *stepper) steps(n int64) {
	s.t.Helper()
	s.run.Resume()
	for i := range n {
		select {
		case <-s.asks:
		case <-time.After(patience):
			s.t.Fatalf("step %d does not begin:\n%v", s.done+1, s.run.Status())
		}
		if i == n-1 {
			s.run.Pause()
			s.settle()
		}
		s.data <- struct{}{}
		s.done++
	}
	s.paused()
}

// free lets the run go on by itself.
func (s *stepper) free() {
	close(s.all)
	s.run.Resume()
}

func fourSteps(t testing.TB, l *log) actors.Spec {
	t.Helper()
	return fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 4,
		evalLens: []int{4, 4}}.spec(t, l)
}

func TestPauseAndResume(t *testing.T) {
	l := &log{}
	s := startPaused(t, fourSteps(t, l), l) // before the stages are ready: the validation is made, no step
	run := s.run
	if doing := run.Status().Actors[0].Doing; doing != event.Paused || len(l.steps()) != 1 {
		t.Errorf("the scheduler is %v after %d events", doing, len(l.steps()))
	}
	run.Checkpoint() // also while it is paused
	eventually(t, run, "the checkpoint", func() bool { return len(eventsOf[event.CheckpointEvent](l)) == 1 })
	run.Checkpoint() // exists already
	s.step()
	s.step()
	run.Pause()
	s.free()
	run.Resume()
	if out := wait(t, run); out.Err != nil || out.Stopped || out.State.Step != 4 {
		t.Errorf("the run ends with %+v", out)
	}
	want := []event.PauseEvent{{Step: 0, Paused: true}, {Step: 0}, {Step: 1, Paused: true}, {Step: 1}, {Step: 2, Paused: true}, {Step: 2}}
	if got := eventsOf[event.PauseEvent](l); !slices.Equal(got, want) {
		t.Errorf("pauses %v, want %v", got, want)
	}
	var steps []int64
	for _, s := range l.saves {
		steps = append(steps, s.state.Step)
	}
	if !slices.Equal(steps, []int64{0, 4}) {
		t.Errorf("checkpoints of steps %v, want 0 and 4", steps)
	}
}

// TestResumeBehindAPause: a resumption takes back a pause that is still being journalled, there too.
func TestResumeBehindAPause(t *testing.T) {
	l := &log{}
	spec := fourSteps(t, l)
	begun, gate := make(chan struct{}), make(chan struct{})
	var kinds []event.ChangeKind
	spec.WriteChange = func(c event.Change) error {
		if kinds = append(kinds, c.Kind); len(kinds) == 1 {
			close(begun)
			<-gate
		}
		return nil
	}
	ready := holdStages(&spec) // or the run may end before the pause has come
	run := start(t, spec)
	run.Change(event.Change{Kind: event.ChangePause, Step: 3})
	<-begun
	close(ready)
	run.Resume()
	time.Sleep(20 * time.Millisecond) // so that it has come
	close(gate)
	eventually(t, run, "the end or a pause", func() bool {
		return len(l.steps()) == 5 || len(eventsOf[event.PauseEvent](l)) > 0
	})
	if paused := eventsOf[event.PauseEvent](l); len(paused) > 0 {
		t.Errorf("it is paused: %v", paused)
		run.Resume()
	}
	if out := wait(t, run); out.Err != nil {
		t.Error(out.Err)
	}
	if !slices.Equal(kinds, []event.ChangeKind{event.ChangePause, event.ChangeResume}) {
		t.Errorf("the journal has %q", kinds)
	}
}

// TestFullJournal: a change for which the journal has no room is refused, and the run goes on. A resume takes effect, with a warning.
func TestFullJournal(t *testing.T) {
	l := &log{}
	spec := fourSteps(t, l)
	spec.WriteChange = func(c event.Change) error {
		if c.Kind == event.ChangePause && c.Step == 1 {
			return nil
		}
		return event.ErrJournal
	}
	rate, stop := event.Change{Kind: event.ChangeRate, LR: 0.5, MinLR: 0.25}, event.Change{Kind: event.ChangeStop, Step: 3}
	spec.Requests = []actors.Request{{ID: 1, Change: event.Change{Kind: event.ChangePause, Step: 1}},
		{ID: 2, Change: rate}, {ID: 3, Change: stop}}
	run := start(t, spec)
	eventually(t, run, "a pause", func() bool { return len(eventsOf[event.PauseEvent](l)) > 0 })
	run.Resume()
	if out := wait(t, run); out.Err != nil || out.State.Step != 4 {
		t.Errorf("it ended at step %d: %v", out.State.Step, out.Err)
	}
	var refused []event.Change
	for _, e := range eventsOf[event.ChangeEvent](l) {
		if errors.Is(e.Err, event.ErrJournal) {
			refused = append(refused, e.Change)
		}
	}
	if !slices.Equal(refused, []event.Change{rate, stop}) || len(eventsOf[event.WarningEvent](l)) != 1 {
		t.Errorf("refused %v, with the warnings %v", refused, eventsOf[event.WarningEvent](l))
	}
	done := 0
	for _, e := range eventsOf[actors.RequestEvent](l) {
		if e.ID > 1 && e.Done {
			done++
		}
	}
	if done != 2 {
		t.Errorf("%d refused requests are done, want 2", done)
	}
}

// TestPauseAfterAResumption: a pause that is asked for while a resumption is being journalled holds after it; one that another
// resumption takes back does not.
func TestPauseAfterAResumption(t *testing.T) {
	for name, more := range map[string]bool{"paused": false, "resumed": true} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			spec := fourSteps(t, l)
			begun, gate := make(chan struct{}), make(chan struct{})
			spec.WriteChange = func(c event.Change) error {
				if c.Kind == event.ChangeRate {
					close(begun)
					<-gate
				}
				return nil
			}
			spec.Requests = []actors.Request{{ID: 1, Change: event.Change{Kind: event.ChangePause}}}
			run := start(t, spec)
			eventually(t, run, "a pause", func() bool { return len(eventsOf[event.PauseEvent](l)) > 0 })
			run.Change(event.Change{Kind: event.ChangeRate, LR: 0.5, MinLR: 0.25})
			<-begun
			run.Resume()
			run.Pause()
			if more {
				run.Resume()
			}
			close(gate)
			if !more {
				eventually(t, run, "another pause", func() bool { return len(eventsOf[event.PauseEvent](l)) == 3 })
				run.Resume()
			}
			if out := wait(t, run); out.Err != nil {
				t.Error(out.Err)
			}
			var got []bool
			for _, e := range eventsOf[event.PauseEvent](l) {
				got = append(got, e.Paused)
			}
			if want := map[bool][]bool{false: {true, false, true, false}, true: {true, false}}[more]; !slices.Equal(got, want) {
				t.Errorf("it is paused and goes on as %v, want %v", got, want)
			}
		})
	}
}

// Stop ends the run at the end of its step with a checkpoint of that step, also
// while it is paused, and before it has begun.
func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		stop    func(t *testing.T, spec actors.Spec, l *log) *actors.Run
		step    int64
		stopped bool
	}{
		"before the stages are ready": {func(t *testing.T, spec actors.Spec, _ *log) *actors.Run {
			ready, whole := make(chan struct{}), spec.Build
			spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
				<-ready
				return whole(rank, s)
			}
			run := start(t, spec)
			run.Stop()
			if err := run.Settle(); err != nil {
				t.Error(err)
			}
			close(ready)
			return run
		}, 0, true},
		"paused": {func(t *testing.T, spec actors.Spec, l *log) *actors.Run {
			s := startPaused(t, spec, l)
			s.step()
			s.step()
			s.run.Stop()
			return s.run
		}, 2, true},
		"in a step": {func(t *testing.T, spec actors.Spec, l *log) *actors.Run {
			s := startPaused(t, spec, l)
			s.run.Resume()
			s.run.Stop()
			s.settle() // the step waits for its data
			s.free()
			return s.run
		}, 1, true},
		"in the last step": {func(t *testing.T, spec actors.Spec, l *log) *actors.Run {
			s := startPaused(t, spec, l)
			for range 3 {
				s.step()
			}
			s.run.Resume()
			s.run.Stop()
			s.settle()
			s.free()
			return s.run
		}, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := &log{}
			out := wait(t, c.stop(t, fourSteps(t, l), l))
			if out.Err != nil || out.Stopped != c.stopped || out.State.Step != c.step {
				t.Errorf("the run ends with %+v", out)
			}
			if n := len(l.saves); n != 1 || l.saves[0].state.Step != c.step || len(l.saves[0].saved) != 2 {
				t.Errorf("checkpoints: %+v", l.saves)
			}
		})
	}
}

// stopper does something in a step while its device sums up, before the step may end.
type stopper struct {
	actors.Compute
	steps int64 // until then
	do    func() error
}

func (s *stopper) GradNorms(l *tensorops.List) {
	if s.steps--; s.steps == 0 {
		x := l.Alloc(tensorops.Float32, 1)
		l.AllReduce(x, tensorops.Sum, brokenGroup{start: s.do})
		l.Free(x)
	}
	s.Compute.GradNorms(l)
}

// TestStopWhereAValidationIsDue: a run that is stopped in a step which is to be validated
// validates it before the checkpoint, so that its lines, and the best step, are those of
// an undisturbed run. One that is stopped before the first step leaves that to the next.
func TestStopWhereAValidationIsDue(t *testing.T) {
	const steps, every = 5, 2
	table := generate(t, scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2, Microbatches: sequences / microbatchSize})
	tr := training{model: small(families[0]), threads: 2, steps: steps, cuts: []int{1, 2, 4}, evalLens: []int{6, 4}, table: table}
	want, whole := regime{training: tr, evalEvery: every, ckEvery: 1}.run(t, false)
	for name, change := range map[string]func(*actors.Spec){
		"in order":        func(*actors.Spec) {},
		"post-validation": func(s *actors.Spec) { s.PostValidate = true },
	} {
		for at := range int64(steps + 1) {
			t.Run(fmt.Sprintf("%s, in step %d", name, at), func(t *testing.T) {
				r := regime{training: tr, evalEvery: every}
				var got []figures
				part := func(at int64) (*log, actors.Outcome) {
					l := &log{}
					spec := r.spec(t, l)
					change(&spec)
					var run *actors.Run
					stop := func() error {
						run.Stop()
						return run.Settle()
					}
					ready, build := make(chan struct{}), spec.Build
					spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
						<-ready
						c, err := build(rank, s)
						if rank == 0 {
							c = &stopper{c, at, stop}
						}
						return c, err
					}
					run = start(t, spec)
					if at == 0 {
						if err := stop(); err != nil {
							t.Error(err)
						}
					}
					close(ready)
					out := wait(t, run)
					if out.Err != nil {
						t.Fatal(out.Err)
					}
					got = append(got, l.figures()...)
					return l, out
				}
				first, out := part(at)
				last := first.saves[len(first.saves)-1]
				if out.State.Step != at || last.state.Step != at || out.Stopped != (at < steps) {
					t.Fatalf("it ends with %+v, the checkpoint is of step %d", out, last.state.Step)
				}
				if at > 0 && last.best != want.saves[at-1].best {
					t.Errorf("that step %d is the best is %v, undisturbed %v", at, last.best, want.saves[at-1].best)
				}
				if at < steps {
					r.from = &last
					_, out = part(-1)
				}
				if b := want.figures(); !slices.Equal(got, b) {
					t.Errorf("%x, undisturbed %x", got, b)
				}
				if a, b := out.State, whole.State; a.BestStep != b.BestStep || *a.BestValLoss != *b.BestValLoss || *a.FirstValLoss != *b.FirstValLoss {
					t.Errorf("it ends with %+v, undisturbed %+v", a, b)
				}
			})
		}
	}
}

// Kill ends a run at any moment, without a checkpoint.
func TestKill(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T, spec actors.Spec, l *log) *actors.Run{
		"at once": func(t *testing.T, spec actors.Spec, _ *log) *actors.Run { return start(t, spec) },
		"in a step": func(t *testing.T, spec actors.Spec, l *log) *actors.Run {
			run := start(t, spec)
			eventually(t, run, "a step", func() bool { return len(l.steps()) > 1 })
			return run
		},
		"paused": func(t *testing.T, spec actors.Spec, l *log) *actors.Run {
			s := startPaused(t, spec, l)
			s.step()
			return s.run
		},
		"stopping": func(t *testing.T, spec actors.Spec, _ *log) *actors.Run {
			run := start(t, spec)
			run.Stop()
			return run
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			l := &log{}
			spec := fourSteps(t, l)
			spec.Steps = 1 << 40
			defer spec.Device.Close()
			run := begin(t, spec, l)
			run.Kill()
			out := wait(t, run)
			if !errors.Is(out.Err, actors.ErrKilled) && !out.Stopped {
				t.Errorf("the run ends with %+v", out)
			}
			if m := spec.Device.Memory(); m.InUse != 0 {
				t.Errorf("%d bytes of tensors are left", m.InUse)
			}
			// Nobody is there any more; nothing happens.
			run.Pause()
			run.Kill()
			run.Stop()
		})
	}
}

// A checkpoint is written every few steps, when the validation was the best,
// and at the end; a step's line comes before its checkpoint.
func TestCheckpointsAndLines(t *testing.T) {
	var mu sync.Mutex
	var order []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, fmt.Sprintf(format, args...))
	}
	l := &log{}
	spec := fourSteps(t, l)
	spec.Steps, spec.EvalEvery, spec.CheckpointEvery = 7, 2, 3
	spec.WriteRecord = func(r telemetry.Record) error {
		note("line %d, validated %v", r.Step, r.ValLoss != nil)
		return nil
	}
	spec.WriteCheckpoint = func(_ context.Context, s trainstate.State, _ []stages.Saved, best bool) (string, error) {
		if s.Tokens != s.Step*16 || s.Updates != s.Step || *s.FirstValLoss != 0.5 {
			t.Errorf("the state at step %d is %+v", s.Step, s)
		}
		note("checkpoint %d, best %v", s.Step, best)
		return "", nil
	}
	if out := wait(t, start(t, spec)); out.Err != nil || out.State.BestStep != 2 || *out.State.BestValLoss != 0.5 {
		t.Fatalf("the run ends with %+v", out)
	}
	place := func(what string) int { return slices.Index(order, what) }
	for _, what := range []string{"line 0, validated true", "line 1, validated false", "line 7, validated true"} {
		if place(what) < 0 {
			t.Errorf("there is no %q in %q", what, order)
		}
	}
	last := -1
	for _, n := range []struct {
		step            int
		best, validated bool
	}{{2, true, true}, {3, false, false}, {6, false, true}, {7, false, true}} {
		line, ckpt := place(fmt.Sprintf("line %d, validated %v", n.step, n.validated)),
			place(fmt.Sprintf("checkpoint %d, best %v", n.step, n.best))
		if line < 0 || ckpt < line || ckpt < last {
			t.Errorf("step %d: the line is in place %d, the checkpoint in %d, the one before in %d, of %q", n.step, line, ckpt, last, order)
		}
		last = ckpt
	}
	if len(order) != 8+4 {
		t.Errorf("%d lines and checkpoints: %q", len(order), order)
	}
}

// spoilt reports a norm that is no number in one step.
type spoilt struct {
	*fake
	step, at int
}

func (s *spoilt) Norms(to []stages.Norm) []stages.Norm {
	s.step++
	to = s.fake.Norms(to)
	if s.step == s.at {
		to[0].Squared = math.NaN()
	}
	return to
}

// A step whose gradient is no number is skipped on every rank, counted, and
// reported.
func TestSkippedStep(t *testing.T) {
	l := &log{}
	spec := fourSteps(t, l)
	var mu sync.Mutex
	did := map[string][]int{}
	whole := spec.Build
	spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
		c, err := whole(rank, s)
		f := c.(*fake)
		f.hook = func(_ *tensorops.List, rank int, what string, _, _ int) {
			mu.Lock()
			defer mu.Unlock()
			did[what] = append(did[what], rank)
		}
		return &spoilt{fake: f, at: 2 + rank}, err // steps 2 and 3
	}
	out := wait(t, start(t, spec))
	if out.Err != nil || out.State.Step != 4 || out.State.Updates != 2 || out.State.Tokens != 64 {
		t.Errorf("the run ends with %+v", out)
	}
	if len(did["clear"]) != 4 || len(did["apply"]) != 4 {
		t.Errorf("dropped %v, applied %v", did["clear"], did["apply"])
	}
	for _, e := range l.steps()[1:] {
		if want := e.Step == 2 || e.Step == 3; e.Skipped != want || math.IsNaN(*e.GradNorm) != want {
			t.Errorf("step %d: skipped %v, norm %g", e.Step, e.Skipped, *e.GradNorm)
		}
	}
}

// When nobody takes the events, training waits for them before the queue grows
// beyond its limit, also where orders are sent ahead.
func TestRecordsAreBounded(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		l := &log{}
		spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 1, Chunks: 1, Microbatches: 1}), threads: 1,
			steps: actors.LimitRecords + 100}.spec(t, l)
		spec.PostValidate = ahead
		gate := make(chan struct{})
		spec.OnEvent = func(e event.Event) {
			<-gate
			l.event(e)
		}
		run := start(t, spec)
		eventually(t, run, "the wait", func() bool {
			s := run.Status().Actors[0]
			return s.Wait == event.WaitDisk && s.From == "metrics" && s.Step == actors.LimitRecords+1
		})
		close(gate)
		if out := wait(t, run); out.Err != nil || len(l.steps()) != actors.LimitRecords+100 {
			t.Errorf("ahead %v: the run ends with %+v after %d steps", ahead, out, len(l.steps()))
		}
	}
}

// Requests at random moments: the run always ends, its steps follow each other,
// and nothing is left.
func TestRequestsAtRandomMoments(t *testing.T) {
	table := generate(t, scheduler.Spec{Ranks: 2, Chunks: 2, Microbatches: 4})
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		l := &log{}
		spec := fakeRun{table: table, threads: 1 + int(seed%3), steps: 20, evalLens: []int{4, 3, 4}}.spec(t, l)
		spec.EvalEvery, spec.CheckpointEvery = 3, 4
		spec.PostValidate = seed%2 == 0
		run := start(t, spec)
		requests := []func(){run.Pause, run.Resume, run.Checkpoint, run.Pause, run.Resume, run.Resume, run.Checkpoint, run.Stop, run.Kill}
		for range 1 + rnd.IntN(12) {
			requests[rnd.IntN(len(requests)-int(seed%3))]()
			time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond)
		}
		run.Resume()
		out := wait(t, run)
		if out.Err != nil && !errors.Is(out.Err, actors.ErrKilled) {
			t.Errorf("seed %d: %v", seed, out.Err)
		}
		for i, e := range l.steps() {
			first := l.steps()[0].Step
			if e.Step != first+i {
				t.Errorf("seed %d: event %d is of step %d, the first of %d", seed, i, e.Step, first)
			}
		}
		paused := false
		for _, p := range eventsOf[event.PauseEvent](l) {
			if p.Paused == paused {
				t.Errorf("seed %d: pauses %v", seed, eventsOf[event.PauseEvent](l))
			}
			paused = p.Paused
		}
		if n := len(l.saves); out.Err == nil && (n == 0 || l.saves[n-1].state.Step != out.State.Step) {
			t.Errorf("seed %d: the run ends at step %d, %d checkpoints", seed, out.State.Step, n)
		}
		if m := spec.Device.Memory(); m.InUse != 0 {
			t.Errorf("seed %d: %d bytes of tensors are left", seed, m.InUse)
		}
		spec.Device.Close()
	}
}
