package members_test

import (
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/cluster/internal/members"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestList(t *testing.T) {
	quiet := func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
	system := actor.NewActorSystem(actor.WithLoggerFactory(quiet),
		actor.WithDeadLetterThrottleInterval(time.Nanosecond))
	defer system.Shutdown()
	var changes []members.Change
	l, err := members.New(system, func(c members.Change) { changes = append(changes, c) })
	if err != nil {
		t.Fatal(err)
	}
	a, b := uuid.New(), uuid.New()
	for _, step := range []struct {
		name         string
		do           func() error
		joined, left []uuid.UUID
	}{
		{"a joins", func() error { return l.Add(a, "10.0.0.1:7") }, []uuid.UUID{a}, nil},
		{"b joins", func() error { return l.Add(b, "[::1]:7") }, []uuid.UUID{b}, nil},
		{"a goes", func() error { l.Remove(a); return nil }, nil, []uuid.UUID{a}},
		{"a goes again", func() error { l.Remove(a); return nil }, nil, nil},
		{"a comes back from the dead", func() error { return l.Add(a, "10.0.0.1:7") }, nil, nil},
		{"b goes", func() error { l.Remove(b); return nil }, nil, []uuid.UUID{b}},
	} {
		changes = nil
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		var joined, left []uuid.UUID
		for _, c := range changes {
			joined, left = append(joined, c.Joined...), append(left, c.Left...)
		}
		if !slices.Equal(joined, step.joined) || !slices.Equal(left, step.left) {
			t.Errorf("%s: %v joined and %v left", step.name, joined, left)
		}
	}
	if err := l.Add(uuid.New(), "nowhere"); err == nil {
		t.Error("an address without a port is taken")
	}
	l.Close()
	changes = nil
	if err := l.Add(uuid.New(), "10.0.0.1:8"); err != nil || len(changes) > 0 {
		t.Errorf("after the end: %v, %v", err, changes)
	}
}
