package actors_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// lines is what a logger writes. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// callersSystem is an actor system with an actor of the caller's that answers.
func callersSystem(t *testing.T) (system *actor.ActorSystem, log *lines, answers func() bool) {
	log = &lines{}
	system = actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(log, nil))
	}))
	t.Cleanup(system.Shutdown)
	// The caller's names are as the run's.
	pid, err := system.Root.SpawnNamed(actor.PropsFromFunc(func(ctx actor.Context) {
		if m, ok := ctx.Message().(string); ok {
			ctx.Respond(m)
		}
	}), "stage 0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := system.Root.StopFuture(pid).Wait(); err != nil {
			t.Error(err)
		}
	})
	return system, log, func() bool {
		m, err := system.Root.RequestFuture(pid, "there?", patience).Result()
		return err == nil && m == "there?"
	}
}

// inSystem is what an actor system holds: its processes' names, and its subscriptions.
func inSystem(s *actor.ActorSystem) (names []string, subscriptions int32) {
	for _, part := range s.ProcessRegistry.LocalPIDs.LocalPIDs {
		names = append(names, part.Keys()...)
	}
	slices.Sort(names)
	return names, s.EventStream.Length()
}

// TestTwoRunsInACallersSystem: two runs of different models and tables at a time in one
// system of the caller's end as they do alone, and the caller's own actor works on.
func TestTwoRunsInACallersSystem(t *testing.T) {
	const m = sequences / microbatchSize
	trainings := []training{
		{model: families[0], threads: 1, steps: 6, evalLens: []int{10, 4}, table: generate(t,
			scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: m}), cuts: []int{2}},
		{model: families[1], threads: 1, steps: 4, table: generate(t, scheduler.Spec{Schedule: scheduler.ZBV, Ranks: 2, Chunks: 2,
			Microbatches: m}), cuts: []int{1, 2, 4}},
	}
	system, said, answers := callersSystem(t)
	before, subscribed := inSystem(system)
	var runs []*actors.Run
	var logs []*log
	ready := make(chan struct{})
	for _, tr := range trainings {
		l := &log{}
		spec := tr.spec(t, l)
		spec.System = system
		whole := spec.Build
		spec.Build = func(rank int, s tensorops.Stream) (actors.Compute, error) {
			<-ready // both are there
			return whole(rank, s)
		}
		runs, logs = append(runs, start(t, spec)), append(logs, l)
	}
	eventually(t, runs[1], "actors of both runs in the system", func() bool {
		during, _ := inSystem(system)
		return len(during)-len(before) == 2*(1+4+2)
	})
	close(ready)
	for i, run := range runs {
		if out := wait(t, run); out.Err != nil {
			t.Fatal(out.Err)
		}
		alone := trainings[i].run(t)
		if got, want := logs[i].figures(), alone.figures(); !slices.Equal(got, want) {
			t.Errorf("run %d: %x, alone %x", i, got, want)
		}
		sameState(t, "the last checkpoint", alone.saves[len(alone.saves)-1], logs[i].saves[len(logs[i].saves)-1])
	}
	if !answers() || system.IsStopped() {
		t.Error("the caller's actor does not answer")
	}
	if after, now := inSystem(system); !slices.Equal(after, before) || now != subscribed {
		t.Errorf("%q and %d subscriptions are in the system, before %q and %d", after, now, before, subscribed)
	}
	if s := said.String(); strings.Contains(s, "DeadLetter") {
		t.Errorf("the caller's log has %s", s)
	}
}

// TestRunsLeaveACallersSystem: ten runs, however they end, leave nothing in a caller's
// system, and the next finds it as the first did.
func TestRunsLeaveACallersSystem(t *testing.T) {
	system, _, answers := callersSystem(t)
	before, subscribed := inSystem(system)
	idle := goleak.IgnoreCurrent()
	for i := range 10 {
		l := &log{}
		hooks := []hook{nil, nil, nil,
			fails(1, "B", 6, func(*tensorops.List) error { return errBoom }),
			fails(0, "F", 6, func(*tensorops.List) error { panic(errBoom) })}
		spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 1, steps: 3, hook: hooks[i%5]}.spec(t,
			l)
		spec.System = system
		want := []error{nil, nil, actors.ErrKilled, errBoom, errBoom}[i%5]
		spec.Steps = []int64{3, 1 << 40, 1 << 40, 3, 3}[i%5]
		run := start(t, spec)
		switch i % 5 {
		case 1:
			run.Stop()
		case 2:
			run.Kill()
		}
		if out := wait(t, run); !errors.Is(out.Err, want) {
			t.Errorf("run %d ends with %v, want %v", i, out.Err, want)
		}
		run.Pause() // it has ended
		spec.Device.Close()
		goleak.VerifyNone(t, idle)
		if after, now := inSystem(system); !slices.Equal(after, before) || now != subscribed {
			t.Fatalf("after run %d: %q and %d subscriptions are in the system, before %q and %d", i, after, now, before, subscribed)
		}
	}
	if !answers() {
		t.Error("the caller's actor does not answer")
	}
}

// TestStoppedFromOutside: whoever stops a run's supervisor in its own system kills the run,
// which leaves nothing.
func TestStoppedFromOutside(t *testing.T) {
	system, said, _ := callersSystem(t)
	before, _ := inSystem(system)
	l := &log{}
	spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 2, steps: 1 << 40}.spec(t, l)
	spec.System = system
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	run := start(t, spec)
	eventually(t, run, "a step", func() bool { return len(l.steps()) > 0 })
	system.Root.Stop(system.NewLocalPID("troupe-" + run.Attempt().String()))
	if out := wait(t, run); !errors.Is(out.Err, actors.ErrKilled) {
		t.Errorf("the run ends with %+v", out)
	}
	if m := spec.Device.Memory(); m.InUse != 0 || m.Pooled != 0 {
		t.Errorf("%+v are left", m)
	}
	if after, _ := inSystem(system); !slices.Equal(after, before) {
		t.Errorf("%q are in the system, before %q", after, before)
	}
	if s := said.String(); strings.Contains(s, "DeadLetter") {
		t.Errorf("the caller's log has %s", s)
	}
}

// TestRefusingSystem: a system in which nothing can be spawned is an error, and nothing is
// left of the run.
func TestRefusingSystem(t *testing.T) {
	system, _, _ := callersSystem(t)
	system.Root.WithSpawnMiddleware(func(actor.SpawnFunc) actor.SpawnFunc {
		return func(*actor.ActorSystem, string, *actor.Props, actor.SpawnerContext) (*actor.PID, error) {
			return nil, errBoom
		}
	})
	spec := fourSteps(t, &log{})
	spec.System = system
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	if run, err := actors.Start(spec); !errors.Is(err, errBoom) || run != nil {
		t.Errorf("%v, %v", run, err)
	}
	if m := spec.Device.Memory(); m.InUse != 0 || m.Pooled != 0 {
		t.Errorf("%+v are left", m)
	}
}

// TestRunLogs: a caller's logger is told how a run begins and ends, and why.
func TestRunLogs(t *testing.T) {
	for name, c := range map[string]struct {
		hook hook
		says []string
	}{
		"finished": {nil, []string{"level=INFO msg=\"run started\"", "ranks=2", "level=INFO msg=\"run ended\"", "step=4 stopped=false"}},
		"failed": {fails(0, "F", 1, func(*tensorops.List) error { return errBoom }),
			[]string{"level=ERROR msg=\"run failed\"", "stage 0 failed in step 1: stage 0: boom"}},
	} {
		t.Run(name, func(t *testing.T) {
			var text lines
			spec := fakeRun{table: generate(t, scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}), threads: 1, steps: 4, hook: c.hook}.spec(t,
				&log{})
			spec.Logger = slog.New(slog.NewTextHandler(&text, nil))
			wait(t, start(t, spec))
			for _, s := range append(c.says, "attempt=") {
				if !strings.Contains(text.String(), s) {
					t.Errorf("the log has no %q:\n%s", s, &text)
				}
			}
		})
	}
}
