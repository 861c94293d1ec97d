package actors

import (
	"errors"
	"testing"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/scheduler"
)

// TestEdgeKeeps: of a run that keeps its data and the weights of its first stage on the edge, these go to no process that has
// none of that stage's ranks, and none gets an answer that asks for them.
func TestEdgeKeeps(t *testing.T) {
	e := newEnds(t)
	h := e.header
	messages := []struct {
		message any
		stays   bool
	}{
		{&Data{Header: h, Batch: &Batch{}}, true},
		{&StageState{Header: h}, true},
		{&TiedGradient{Header: h}, true},
		{&Weight{Header: h, Param: "embedding"}, true},
		{&Weight{Header: h, Param: "embedding", Err: ErrEdge}, false},
		{&Weight{Header: h, Param: "between"}, false},
		{&Transfer{Header: h, Kind: scheduler.ForwardEdge, To: 1}, false},
		{&Order{Header: h}, false},
		{&Apply{Header: h}, false},
	}
	ask := func(host string) error {
		p, err := e.stages.Pack(&DataRequest{Header: h, Phase: Train, Chunk: 1, Tokens: true, ReplyTo: actor.NewPID(host, actorID(h.Attempt, stageName(1)))})
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.coordinator.Unpack(p.Message)
		return err
	}
	for _, edge := range []bool{false, true} {
		for _, s := range []*Spec{&e.coordinator.spec, &e.stages.spec} {
			s.Edge, s.EdgeParams = edge, map[string]bool{"embedding": true}
		}
		for _, m := range messages {
			for _, c := range []*Codec{e.coordinator, e.stages} { // rank 0 is on w0, and rank 1 on w1
				if err := c.Leave(m.message, "w1"); errors.Is(err, ErrEdge) != (edge && m.stays) {
					t.Errorf("edge %v: %s for the other stage: %v", edge, Name(m.message), err)
				}
				if err := c.Leave(m.message, "the coordinator"); err != nil {
					t.Errorf("edge %v: %s for the coordinator: %v", edge, Name(m.message), err)
				}
			}
			if err := e.coordinator.Leave(m.message, "w0"); err != nil {
				t.Errorf("edge %v: %s for the first stage: %v", edge, Name(m.message), err)
			}
		}
		if err := ask("w1"); errors.Is(err, ErrEdge) != edge {
			t.Errorf("edge %v: the other stage asks for data: %v", edge, err)
		}
		if err := ask("w0"); err != nil {
			t.Errorf("edge %v: the first stage asks for data: %v", edge, err)
		}
	}
}
