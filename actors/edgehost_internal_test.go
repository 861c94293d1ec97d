package actors

import (
	"errors"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// TestEdgeKeeps: data, the first stage's weights and states go only to processes that need them, of a run with an edge to
// none that has no rank of its first stage: not to a member without ranks either.
func TestEdgeKeeps(t *testing.T) {
	const all, edge, never = "w0 w1", "w0", ""
	e := newEnds(t)
	h := e.header
	data := func(chunk int32) *Data { return &Data{Header: h, Chunk: chunk, Batch: &Batch{}} }
	for _, c := range []struct {
		message         any
		without, within string // who may have it without an edge, and with one
	}{
		{data(0), "w0", "w0"},
		{data(1), "w1", never},
		{data(9), never, never},
		{&StageState{Header: h}, never, never},
		{&TiedGradient{Header: h}, all, edge},
		{&Weight{Header: h, Param: "embedding"}, all, edge},
		{&Weight{Header: h, Param: "between"}, "w1", "w1"},
		{&Weight{Header: h, Param: "unknown"}, never, never},
		{&StepGradient{Header: h, Rank: 0}, "w1", never},
		{&StepGradient{Header: h, Rank: 1}, "w0", "w0"},
		{&StepGradient{Header: h, Rank: 9}, never, never},
	} {
		for _, keeps := range []bool{false, true} {
			want := map[bool]string{false: c.without, true: c.within}[keeps]
			for _, s := range []*Spec{&e.coordinator.spec, &e.stages.spec} {
				s.Edge, s.EdgeParams = keeps, map[string]bool{"embedding": true}
				s.Holders = map[string][]int{"embedding": {0, 1}, "between": {1}}
			}
			for _, to := range []string{"w0", "w1", "spare", ""} {
				may := to != "" && (want == to || want == all && to != "spare")
				for name, codec := range map[string]*Codec{"the coordinator": e.coordinator, "a worker": e.stages} {
					if name == "a worker" && to == "w0" { // which it is
						continue
					}
					err := codec.Leave(c.message, to)
					if (err == nil) != may || err != nil && !errors.Is(err, ErrEdge) && !errors.Is(err, ErrNotForIt) {
						t.Errorf("edge %v: %s (%+v) leaves %s for %q: %v", keeps, Name(c.message), c.message, name, to, err)
					}
				}
			}
			if err := e.stages.Leave(c.message, "coordinator"); (err == nil) != isState(c.message) {
				t.Errorf("edge %v: %s leaves for the coordinator: %v", keeps, Name(c.message), err)
			}
		}
	}
	for _, m := range []any{&Weight{Header: h, Param: "embedding", Err: ErrEdge}, &Transfer{Header: h, Kind: scheduler.ForwardEdge, To: 1},
		&Order{Header: h}, &Apply{Header: h}} {
		if err := e.coordinator.Leave(m, "w1"); err != nil {
			t.Errorf("%s: %v", Name(m), err)
		}
	}
}

func isState(m any) bool {
	_, is := m.(*StageState)
	return is
}

// TestAnswersGoToTheSender: whatever address a request names, its answer is for the process that has sent it, and for a rank
// of its own.
func TestAnswersGoToTheSender(t *testing.T) {
	for i := range 4 {
		edge, packed := i&1 > 0, i&2 > 0
		e := newEnds(t)
		h := e.header
		s := &e.coordinator.spec
		s.Packed = packed
		s.Edge, s.EdgeParams, s.Readers = edge, map[string]bool{"embedding": true}, []bool{true, false}
		s.Holders = map[string][]int{"embedding": {0}, "between": {1}}
		for _, c := range []struct {
			from    string
			message any
			ok      bool
		}{
			{"w0", &DataRequest{Header: h, Phase: event.Train, ReplyTo: actor.NewPID("spare", actorID(h.Attempt, stageName(0)))}, true},
			{"w0", &DataRequest{Header: h, Phase: event.Train, ReplyTo: actor.NewPID("w0", actorID(h.Attempt, stageName(1)))}, false},
			{"w0", &DataRequest{Header: h, Phase: event.Train, ReplyTo: actor.NewPID("w0", SupervisorID(h.Attempt))}, false},
			{"w0", &DataRequest{Header: h, Phase: event.Train, Chunk: 1, ReplyTo: actor.NewPID("w0", actorID(h.Attempt, stageName(0)))}, false},
			{"w1", &DataRequest{Header: h, Phase: event.Train, ReplyTo: actor.NewPID("w0", actorID(h.Attempt, stageName(0)))}, false},
			{"w1", &DataRequest{Header: h, Phase: event.Train, ReplyTo: actor.NewPID("w1", actorID(h.Attempt, stageName(1)))}, false},
			// which reads none
			{"w1", &DataRequest{Header: h, Phase: event.Train, Chunk: 1, ReplyTo: actor.NewPID("w1", actorID(h.Attempt, stageName(1)))}, false},
			// Only in a packed run, and only where documents start.
			{"w1", &DataRequest{Header: h, Phase: event.Train, Chunk: 1, Starts: true,
				ReplyTo: actor.NewPID("w1", actorID(h.Attempt, stageName(1)))},
				packed},
			{"w1", &DataRequest{Header: h, Phase: event.Train, Chunk: 1, Starts: true, Targets: true,
				ReplyTo: actor.NewPID("w1", actorID(h.Attempt, stageName(1)))}, false},
			{"w0", &DataRequest{Header: h, Phase: event.Train, Chunk: 1, Starts: true,
				ReplyTo: actor.NewPID("w0", actorID(h.Attempt, stageName(0)))}, false},
			{"spare", &DataRequest{Header: h, Phase: event.Train, ReplyTo: actor.NewPID("spare", actorID(h.Attempt, stageName(0)))}, false},
			{"w0", &ReadWeight{Header: h, Param: "embedding", ReplyTo: actor.NewPID("spare", SupervisorID(h.Attempt))}, true},
			{"w1", &ReadWeight{Header: h, Param: "between", ReplyTo: actor.NewPID("w0", SupervisorID(h.Attempt))}, true},
			{"w1", &ReadWeight{Header: h, Param: "embedding", ReplyTo: actor.NewPID("w0", SupervisorID(h.Attempt))}, false},
			{"spare", &ReadWeight{Header: h, Param: "between", ReplyTo: actor.NewPID("w1", SupervisorID(h.Attempt))}, false},
		} {
			p, err := e.stages.Pack(c.message)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.coordinator.Unpack(p.Message, c.from)
			if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMessage) {
				t.Errorf("edge %v: %+v from %s: %+v, %v", edge, c.message, c.from, got, err)
			}
			var to *actor.PID
			switch m := got.(type) {
			case *DataRequest:
				to = m.ReplyTo
			case *ReadWeight:
				to = m.ReplyTo
			}
			if err == nil && to.GetAddress() != c.from {
				t.Errorf("edge %v: the answer to %s goes to %s", edge, c.from, to)
			}
		}
	}
}
