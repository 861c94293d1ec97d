package actors_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

var errBoom = errors.New("boom")

// badText is a Source that fails at a step, or in validation.
type badText struct {
	randomText
	step int64 // 0: in validation
	do   func() error
}

func (s badText) Train(step int64, index int, tokens, targets []int32) error {
	if step == s.step {
		return s.do()
	}
	return s.randomText.Train(step, index, tokens, targets)
}

func (s badText) EvalFill(index int, tokens, targets []int32) error {
	if s.step == 0 && index == 2 {
		return s.do()
	}
	return s.randomText.EvalFill(index, tokens, targets)
}

// brokenGroup is a collective operation that fails as soon as it starts.
type brokenGroup struct {
	tensorops.Solo
	start func() error
}

func (g brokenGroup) Start(_ *tensorops.Op, done func(error)) { done(g.start()) }

// fails is a hook that does something the n-th time a rank records something.
func fails(rank int, what string, n int32, do func(l *tensorops.List) error) hook {
	var seen atomic.Int32
	return func(l *tensorops.List, r int, w string, _, _ int) {
		if r == rank && w == what && seen.Add(1) == n {
			l.Fail(do(l))
		}
	}
}

// Whatever fails, wherever: the run ends, names the actor and the cause, and
// leaves nothing behind.
func TestFailureEndsTheRun(t *testing.T) {
	give := func(*tensorops.List) error { return errBoom }
	throw := func(*tensorops.List) error { panic(errBoom) }
	giveUp, throwUp := func() error { return errBoom }, func() error { panic(errBoom) }
	onDevice := func(do func() error) func(l *tensorops.List) error {
		return func(l *tensorops.List) error {
			x := l.Alloc(tensorops.Float32, 1)
			l.AllReduce(x, tensorops.Sum, brokenGroup{start: do})
			l.Free(x)
			return nil
		}
	}
	type change = func(*actors.Spec)
	none := func(*actors.Spec) {}
	build := func(rank int, do func() error) change {
		return func(s *actors.Spec) {
			whole, failed := s.Build, make(chan struct{})
			s.Build = func(r int, st tensorops.Stream) (actors.Compute, error) {
				if r == rank {
					defer close(failed)
					return nil, do()
				}
				<-failed // the others are not done yet
				return whole(r, st)
			}
		}
	}
	text := func(step int64, do func() error) change {
		return func(s *actors.Spec) { s.Data = badText{s.Data.(randomText), step, do} }
	}
	record := func(step int, do func() error) change {
		return func(s *actors.Spec) {
			s.WriteRecord = func(r telemetry.Record) error {
				if r.Step == step {
					return do()
				}
				return nil
			}
		}
	}
	checkpoint := func(do func() error) change {
		return func(s *actors.Spec) {
			s.WriteCheckpoint = func(context.Context, trainstate.State, []stages.Saved, bool) (string, error) { return "", do() }
		}
	}
	type failure struct {
		name   string
		actor  string
		step   int64
		hook   hook
		change change
	}
	cases := []failure{
		{"build fails", "stage 1", 0, nil, build(1, giveUp)},
		{"build panics", "stage 0", 0, nil, build(0, throwUp)},
		{"training data", "loader", 2, nil, text(2, giveUp)},
		{"training data panics", "loader", 2, nil, text(2, throwUp)},
		{"validation data", "loader", 0, nil, text(0, giveUp)},
		{"validation data panics", "loader", 0, nil, text(0, throwUp)},
		{"line", "metrics", 2, nil, record(2, giveUp)},
		{"line panics", "metrics", 2, nil, record(2, throwUp)},
		{"last line", "metrics", 4, nil, func(s *actors.Spec) { record(4, giveUp)(s); s.WriteCheckpoint = nil }},
		{"checkpoint", "checkpoint", 2, nil, checkpoint(giveUp)},
		{"checkpoint panics", "checkpoint", 2, nil, checkpoint(throwUp)},
		{"event panics", "metrics", 2, nil, func(s *actors.Spec) {
			s.OnEvent = func(e event.Event) {
				if e, ok := e.(event.StepEvent); ok && e.Step == 2 {
					panic(errBoom)
				}
			}
		}},
		{"recomputation panics", "stage 0", 1, nil, func(s *actors.Spec) { s.Recompute = func(int, int) bool { panic(errBoom) } }},
	}
	// Each part of a step, with each way to fail: the recording, a panic in it, the
	// device, a panic on the device. The n-th of a rank's actions is in step 2.
	for _, part := range []struct {
		what string
		rank int
		n    int32
		step int64
	}{{"F", 0, 8, 2}, {"F", 1, 11, 2}, {"B", 0, 6, 2}, {"B", 1, 8, 2}, {"tied", 0, 2, 2}, {"tied", 1, 2, 2},
		{"norms", 0, 2, 2}, {"norms", 1, 2, 2}, {"apply", 0, 2, 2}, {"apply", 1, 2, 2}, {"save", 0, 1, 2}, {"save", 1, 2, 4}} {
		for how, do := range map[string]func(l *tensorops.List) error{
			"refused": give, "panics": throw, "fails on the device": onDevice(giveUp), "panics on the device": onDevice(throwUp)} {
			cases = append(cases, failure{fmt.Sprintf("%s of rank %d %s", part.what, part.rank, how), fmt.Sprintf("stage %d", part.rank), part.step,
				fails(part.rank, part.what, part.n, do), none})
		}
	}
	table := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			spec := fakeRun{table: table, threads: 2, steps: 4, evalLens: []int{4, 4, 2}, hook: c.hook}.spec(t, &log{})
			defer spec.Device.Close()
			spec.CheckpointEvery = 2
			c.change(&spec)
			out := wait(t, start(t, spec))
			var failure *actors.ActorError
			if !errors.As(out.Err, &failure) || !errors.Is(out.Err, errBoom) {
				t.Fatalf("the run ends with %v", out.Err)
			}
			if failure.Actor != c.actor || failure.Step != c.step {
				t.Errorf("%s failed in step %d, want %s in step %d: %v", failure.Actor, failure.Step, c.actor, c.step, failure)
			}
			if m := spec.Device.Memory(); m.InUse != 0 || m.Pooled != 0 || m.Peak == 0 && c.step > 0 {
				t.Errorf("%+v are left", m)
			}
		})
	}
}

// A panic of an actor, and another while it ends, is the run's failure and stops it in
// order, as any failure does; so is one of the supervisor.
func TestPanicOfEveryActor(t *testing.T) {
	for _, name := range []string{"supervisor", "scheduler", "loader", "checkpoint", "metrics", "stage 1"} {
		for _, times := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s %d", name, times), func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				l := &log{}
				spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 1 << 40}.spec(t, l)
				defer spec.Device.Close()
				run := start(t, spec)
				eventually(t, run, "a step", func() bool { return len(l.steps()) > 0 })
				for range times {
					if name == "supervisor" {
						run.TellSupervisor(actors.PanicMessage(name))
					} else {
						run.Tell(name, actors.PanicMessage(name))
					}
				}
				out := wait(t, run)
				var thrown *actors.Panic
				if !errors.As(out.Err, &thrown) || len(thrown.Stack) == 0 {
					t.Fatalf("the run ends with %v", out.Err)
				}
				var failure *actors.ActorError
				if errors.As(out.Err, &failure) != (name != "supervisor") || failure != nil && failure.Actor != name {
					t.Errorf("the run ends with %v", out.Err)
				}
				if m := spec.Device.Memory(); m.InUse != 0 || m.Pooled != 0 {
					t.Errorf("%+v are left", m)
				}
			})
		}
	}
}

// A device's own error names the operation: here, a token that the vocabulary
// does not have.
func TestDeviceErrorOfARealModel(t *testing.T) {
	tr := training{model: families[0], threads: 2, steps: 4, table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 8}),
		cuts: []int{2}}
	spec := tr.spec(t, &log{})
	spec.Data = randomText{vocab: 1000}
	out := wait(t, start(t, spec))
	if !errors.Is(out.Err, tensorops.ErrToken) || !strings.HasPrefix(out.Err.Error(), "stage 0 failed in step 1: ") {
		t.Errorf("the run ends with %v", out.Err)
	}
}

// A checkpoint that is being written when something else fails is finished.
func TestFailureFinishesTheCheckpoint(t *testing.T) {
	for name, end := range map[string]func(*actors.Run, chan<- struct{}){
		"failure": func(_ *actors.Run, failing chan<- struct{}) { close(failing) },
		"kill":    func(r *actors.Run, failing chan<- struct{}) { r.Kill(); close(failing) },
	} {
		t.Run(name, func(t *testing.T) {
			failing, writing, written := make(chan struct{}), make(chan struct{}), false
			table := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4})
			var run *actors.Run
			spec := fakeRun{table: table, threads: 2, steps: 1 << 30}.spec(t, &log{})
			spec.CheckpointEvery = 1 << 20
			spec.WriteCheckpoint = func(context.Context, trainstate.State, []stages.Saved, bool) (string, error) {
				close(writing)
				<-failing
				eventually(t, run, "the end", func() bool { return run.Status().Actors[0].Doing != event.Running })
				written = true
				return "dir", nil
			}
			spec.WriteRecord = func(telemetry.Record) error {
				select {
				case <-failing:
					return errBoom
				default:
					return nil
				}
			}
			run = start(t, spec)
			run.Checkpoint()
			<-writing
			end(run, failing)
			if out := wait(t, run); out.Err == nil || !written {
				t.Errorf("the run ends with %v, the checkpoint is written: %v", out.Err, written)
			}
		})
	}
}

// A failure that comes while the run is being killed, or after another, does not
// replace the first reason.
func TestFirstReasonCounts(t *testing.T) {
	table := generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4})
	var run *actors.Run
	started := make(chan struct{})
	spec := fakeRun{table: table, threads: 2, steps: 1 << 30}.spec(t, &log{})
	whole := spec.Build
	spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
		<-started
		if rank == 1 {
			run.Kill() // in the supervisor's mailbox before the failure is
			return nil, errBoom
		}
		return whole(rank, s)
	}
	run = start(t, spec)
	close(started)
	if out := wait(t, run); !errors.Is(out.Err, actors.ErrKilled) {
		t.Errorf("the run ends with %v", out.Err)
	}
}
