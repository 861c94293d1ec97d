package service

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// patience is how long a busy machine may take for what a test waits for.
const patience = 2 * time.Minute

// newSystem is a service's own.
func newSystem(t *testing.T) *actor.ActorSystem {
	t.Helper()
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) }),
		actor.WithDeadLetterThrottleInterval(time.Nanosecond)) // else its goroutine sleeps for a second
	t.Cleanup(system.Shutdown)
	return system
}

// watch spawns a watcher of which a channel gets all messages, as far as it has room.
func watch(t *testing.T, system *actor.ActorSystem, room int) (*actor.PID, <-chan any) {
	t.Helper()
	got := make(chan any, room)
	pid := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch m := ctx.Message().(type) {
		case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Touch:
		default:
			got <- m
		}
	}))
	return pid, got
}

// next waits for a message of a type.
func next[M any](t *testing.T, got <-chan any) M {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case m := <-got:
			if m, ok := m.(M); ok {
				return m
			}
		case <-end:
			t.Fatalf("no %T came", *new(M))
		}
	}
}

// The actors of a service watch a run, and send it commands.
func TestRunActor(t *testing.T) {
	system := newSystem(t)
	pid, got := watch(t, system, 1<<16)
	run, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"),
		append(testrun.Endless, tiny...)...),
		troupe.Options{System: system, Watchers: []*actor.PID{pid, pid, nil}})
	if err != nil {
		t.Fatal(err)
	}
	if s := next[troupe.StepEvent](t, got); s.Step != 0 && s.Step != 1 {
		t.Errorf("the first step event is of step %d", s.Step)
	}
	ask := func(m any) any {
		t.Helper()
		answer, err := system.Root.RequestFuture(run.PID(), m, patience).Result()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if r, ok := ask(troupe.Change{Kind: "pause"}).(troupe.ChangeReply); !ok || r.Err != nil || r.Change.Kind != "pause" {
		t.Errorf("a pause is answered with %+v", r)
	}
	if e := next[troupe.PauseEvent](t, got); !e.Paused {
		t.Errorf("%+v", e)
	}
	if s, ok := ask(troupe.StatusRequest{}).(troupe.Status); !ok || len(s.Chain()) == 0 {
		t.Errorf("the status is %v", s)
	}
	if r, ok := ask(troupe.Change{Kind: "faster"}).(troupe.ChangeReply); !ok || !errors.Is(r.Err, troupe.ErrOptions) {
		t.Errorf("an unknown change is answered with %+v", r)
	}
	// One that comes later hears of what follows; one that has unsubscribed does not.
	late, heard := watch(t, system, 1<<16)
	system.Root.Send(run.PID(), troupe.Subscribe{Watcher: late})
	system.Root.Send(run.PID(), troupe.Unsubscribe{Watcher: pid})
	ask(troupe.Change{Kind: "rate", LR: 1e-4})
	if e := next[troupe.ChangeEvent](t, heard); e.LR != 1e-4 || e.Err != nil {
		t.Errorf("%+v", e)
	}
	select {
	case m := <-got:
		if _, ok := m.(troupe.ChangeEvent); !ok { // that of the pause
			t.Errorf("who has unsubscribed still gets %T", m)
		}
	default:
	}
	// Who stops the actor stops the run.
	system.Root.Poison(run.PID())
	result, _ := testrun.Finish(t, run)
	if !result.Stopped || result.Dir == "" {
		t.Errorf("it ended with %+v", result)
	}
}

// A watcher learns how a run ends, and its death is no matter to the run.
func TestRunActorEnds(t *testing.T) {
	system := newSystem(t)
	pid, got := watch(t, system, 1<<16)
	dead, _ := watch(t, system, 0)
	if err := system.Root.StopFuture(dead).Wait(); err != nil {
		t.Fatal(err)
	}
	o := troupe.Options{System: system, Watchers: []*actor.PID{dead, pid}}
	run, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out")), o)
	if err != nil {
		t.Fatal(err)
	}
	result, _ := testrun.Finish(t, run)
	if e := next[troupe.EndEvent](t, got); e.Err != nil || e.Result.Step != result.Step || e.Result.Dir != result.Dir {
		t.Errorf("the watcher was told %+v, Wait said %+v", e, result)
	}
	if _, err := system.Root.RequestFuture(run.PID(), troupe.StatusRequest{}, patience).Result(); !errors.Is(err, actor.ErrDeadLetter) {
		t.Errorf("the actor of a run that has ended: %v", err)
	}
	// One that can't begin tells why, too.
	if _, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"), `data.train=["nothing"]`),
		o); err == nil {
		t.Fatal("it began")
	}
	var setup *troupe.SetupError
	if e := next[troupe.EndEvent](t, got); !errors.As(e.Err, &setup) {
		t.Errorf("the watcher was told %+v", e)
	}
}

// A watcher that takes nothing does not hold the run up, and hears in the end how much it missed.
func TestSlowWatcher(t *testing.T) {
	system := newSystem(t)
	pid, got := watch(t, system, 0)
	steps := troupe.LimitEvents + 200
	run, err := troupe.Start(context.Background(), testrun.NewConfig(t, filepath.Join(t.TempDir(), "out"),
		append(tiny, "run.steps=1224", "run.checkpoint_every=0", "run.eval_every=0")...),
		troupe.Options{System: system, Watchers: []*actor.PID{pid}})
	if err != nil {
		t.Fatal(err)
	}
	if result, _ := testrun.Finish(t, run); result.Step != steps {
		t.Fatalf("it ended at step %d", result.Step)
	}
	n := 0
	for end := time.After(patience); ; {
		select {
		case m := <-got:
			switch m.(type) {
			case troupe.StepEvent:
				n++
				continue
			case troupe.EndEvent:
			default:
				continue
			}
		case <-end:
			t.Fatal("there is no end")
		}
		break
	}
	if n > troupe.LimitEvents || n < troupe.LimitEvents/2 {
		t.Errorf("%d of %d step events came", n, steps)
	}
}
