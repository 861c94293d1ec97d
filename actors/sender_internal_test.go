package actors

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// everySender are the processes that reach others: each of four stages is on a worker, of which w1 is the one that takes
// what is for stages; spare is a member without ranks, and "" a process that the attempt does not know.
var everySender = []string{"coordinator", "w0", "w1", "w2", "w3", "spare", ""}

// newFour are the codecs of a coordinator and of w1.
func newFour(t testing.TB) ends {
	t.Helper()
	e := newEnds(t)
	table, err := scheduler.Generate(scheduler.Spec{Ranks: 4, Chunks: 1, Microbatches: 4})
	if err != nil {
		t.Fatal(err)
	}
	for c, hosts := range map[*Codec][]string{e.coordinator: {"w0", "w1", "w2", "w3"}, e.stages: {"w0", "", "w2", "w3"}} {
		s := &c.spec
		s.Table, s.EvalTable, s.Hosts, s.TiedRanks, s.Shares = table, nil, hosts, []int{0, 1, 3}, nil
		s.Readers, s.Holders = []bool{true, false, false, true}, map[string][]int{"between": {2}, "tied": {0, 3}}
		if c.tables, err = s.analyseTables(); err != nil {
			t.Fatal(err)
		}
		c.arrivals = make([]tensorops.Arena, 4)
		s.Shadows = []int{1, 3, -1, -1}
		s.Copies = func(rank int) []int { // ranks 1 and 2 have the same weights
			if rank == 1 || rank == 2 {
				return []int{1, 2}
			}
			return []int{rank}
		}
	}
	return e
}

// senderCase is a message with those who may send it.
type senderCase struct {
	message any
	from    []string
}

// senderTable has a row for each kind of message: what each of everySender may send.
func senderTable(t testing.TB, e ends) map[string][]senderCase {
	h := e.header
	boss, none := []string{"coordinator"}, []string(nil)
	of := func(rank int) []string { return []string{fmt.Sprint("w", rank)} }
	pid := func(host, name string) *actor.PID { return actor.NewPID(host, actorID(h.Attempt, name)) }
	asks := func(chunk int32, rank int) *DataRequest {
		return &DataRequest{Header: h, Phase: event.Train, Chunk: chunk, Tokens: true, ReplyTo: pid("w0", stageName(rank))}
	}
	reads := func(param string) *ReadWeight {
		return &ReadWeight{Header: h, Param: param, ReplyTo: actor.NewPID("w0", SupervisorID(h.Attempt))}
	}
	readsState := func(rank int) *ReadState {
		return &ReadState{Header: h, Rank: rank, Param: "w", ReplyTo: actor.NewPID("w2", SupervisorID(h.Attempt))}
	}
	transfer := func(kind scheduler.EdgeKind, to, rank int32) *Transfer {
		return &Transfer{Header: h, Kind: kind, To: to, Rank: rank, Tensor: e.tensor(t, 2)}
	}
	state := func(rank int, name, part string) *StageState {
		return &StageState{Header: h, Rank: rank, Copies: e.coordinator.copies.NewArena("sample"),
			Saved: []stages.Saved{{Name: name, Part: part, Shape: []int{1}, Data: []float32{1}}}}
	}
	return map[string][]senderCase{
		"peers": {{&Peers{Header: h, Scheduler: pid("x", schedulerName), Loader: pid("x", loaderName), Checkpoint: pid("x", checkpointName),
			Stages: make([]*actor.PID, 4)}, boss}},
		"order":       {{&Order{Header: h, Phase: event.Train}, boss}},
		"apply":       {{&Apply{Header: h}, boss}},
		"save_state":  {{&SaveState{Header: h}, boss}},
		"write_state": {{&WriteState{Header: h}, boss}},
		"send_state":  {{&SendState{h}, boss}},
		"drop_state":  {{&DropState{h}, boss}},
		"halt":        {{halt{}, boss}},
		"leave":       {{leave{}, boss}},
		"read_state": {{readsState(1), of(2)}, {readsState(2), none}, {readsState(9), none},
			// of the shadow of rank 0, which w1 holds, and for that of rank 1, which w3 holds
			{&ReadState{Header: h, Rank: 1, Shadow: 1, ReplyTo: actor.NewPID("w0", SupervisorID(h.Attempt))}, of(0)},
			{&ReadState{Header: h, Rank: 1, Shadow: 2, ReplyTo: actor.NewPID("w0", SupervisorID(h.Attempt))}, none},
			{&ReadState{Header: h, Rank: 1, Shadow: 9, ReplyTo: actor.NewPID("w0", SupervisorID(h.Attempt))}, none},
			{&ReadState{Header: h, Rank: 1, ReplyTo: pid("w3", stageName(3))}, of(3)},
			{&ReadState{Header: h, Rank: 1, ReplyTo: pid("w2", stageName(2))}, none}},
		"step_gradient": {{&StepGradient{Header: h, Grads: []stages.Gradient{{Param: 1, Grad: e.tensor(t, 2)}}}, of(0)},
			{&StepGradient{Header: h, Rank: 1}, none}, {&StepGradient{Header: h, Rank: 2}, none},
			{&StepGradient{Header: h, Rank: 9}, none}},
		"shadowed": {{&Shadowed{h, 0}, of(1)}, {&Shadowed{h, 1}, of(3)}, {&Shadowed{h, 2}, none}, {&Shadowed{h, 9}, none}},
		"rank_state": {{&RankState{Header: h, Rank: 2, Tensor: e.tensor(t, 2)}, of(2)},
			{&RankState{Header: h, Rank: 2, Err: errGone}, of(2)},
			{&RankState{Header: h, Rank: 1, Err: errGone}, none}, {&RankState{Header: h, Rank: 3, Err: errGone}, none},
			{&RankState{Header: h, Rank: 0, Err: errGone}, of(0)}, {&RankState{Header: h, Rank: 3, Shadow: 2, Err: errGone}, of(3)},
			{&RankState{Header: h, Rank: 3, Shadow: 1, Err: errGone}, none},
			{&RankState{Header: h, Rank: 0, Shadow: 9, Err: errGone}, none}},
		"data":   {{&Data{Header: h, Batch: &Batch{Extent: Extent{0, 1, 1, 0}, Tokens: []int32{1}}}, boss}},
		"weight": {{&Weight{Header: h, Tensor: e.tensor(t, 2)}, boss}, {&Weight{Header: h, Err: errGone}, boss}},
		"transfer": {{transfer(scheduler.ForwardEdge, 1, 1), of(0)}, {transfer(scheduler.BackwardEdge, 1, 1), of(2)},
			{transfer(scheduler.ForwardEdge, 2, 1), none}, {transfer(scheduler.ForwardEdge, 1, 2), none},
			{transfer(scheduler.ForwardEdge, 1, 9), none}},
		"tied_gradient": {{&TiedGradient{Header: h, From: 3, Grad: stages.TiedGrad{Grad: e.tensor(t, 2)}}, of(3)},
			{&TiedGradient{Header: h, From: 2, Grad: stages.TiedGrad{Grad: e.tensor(t, 2)}}, none},  // whose stage has no tied weight
			{&TiedGradient{Header: h, From: 1, Grad: stages.TiedGrad{Grad: e.tensor(t, 2)}}, none}}, // which is here
		"credit": {{&Credit{Header: h, Kind: scheduler.ForwardEdge, Edge: 1}, of(2)},
			{&Credit{Header: h, Kind: scheduler.BackwardEdge, Edge: 1}, of(0)},
			{&Credit{Header: h, Kind: scheduler.ForwardEdge, Edge: 0}, none}},
		"data_request":  {{asks(0, 0), of(0)}, {asks(3, 3), of(3)}, {asks(1, 1), none}, {asks(0, 3), none}, {asks(3, 0), none}},
		"read_weight":   {{reads("between"), of(2)}, {reads("tied"), append(of(0), of(3)...)}, {reads("unknown"), none}},
		"stage_done":    {{&StageDone{Header: h, Rank: 2}, of(2)}},
		"applied":       {{&Applied{h, 2}, of(2)}},
		"stage_ready":   {{&StageReady{h, 2, 0}, of(2)}, {&StageReady{h, 9, 0}, none}, {&StageReady{h, -1, 0}, none}},
		"state_written": {{&StateWritten{Header: h, Rank: 2}, of(2)}},
		"halted":        {{&halted{2}, of(2)}},
		"left":          {{&left{2}, of(2)}},
		// another stage's weight
		"stage_state": {{state(2, "between", ""), of(2)}, {state(2, "m.between", "m"), of(2)}, {state(2, "tied", ""), none},
			{state(3, "tied", ""), of(3)}},
		"failed": {{&Failed{Header: h, Actor: stageName(2), Err: errGone}, of(2)},
			{&Failed{Header: h, Actor: schedulerName, Err: errGone}, none}},
	}
}

// TestKindBySender walks the whole table: each kind of message that the wire knows is taken from those who may send it, at the
// end that it is for, and from nobody else.
func TestKindBySender(t *testing.T) {
	e := newFour(t)
	table := senderTable(t, e)
	fields := (&wire.Message{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	kinds := make(map[string]MessageKind)
	for _, k := range MessageKinds() {
		kinds[k.Name] = k
	}
	if len(kinds) != fields.Len() || len(table) != fields.Len() {
		t.Errorf("%d kinds have a rule and %d a row, the wire has %d", len(kinds), len(table), fields.Len())
	}
	cells := 0
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		if kinds[name].From == "" || len(table[name]) == 0 {
			t.Errorf("%s has no rule or no row: say who may send it", name)
			continue
		}
		for n, c := range table[name] {
			for _, to := range []direction{toStages, toCoordinator} {
				for _, from := range everySender {
					cells++
					may := slices.Contains(c.from, from) && (to == toCoordinator) == kinds[name].ToBoss
					if err := e.deliver(t, to, c.message, name, from); (err == nil) != may || err != nil && !errors.Is(err, ErrMessage) {
						t.Errorf("%s %d to the %v from %q: %v; want it taken: %v", name, n, to, from, err, may)
					}
				}
			}
		}
	}
	t.Logf("%d kinds, %d cells", fields.Len(), cells)
}

// deliver packs a message, of the kind of that name, and lets an end take it.
func (e ends) deliver(t *testing.T, to direction, m any, name, from string) error {
	t.Helper()
	p, err := e.of(toStages + toCoordinator - to).Pack(m)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Message.ProtoReflect().WhichOneof(p.Message.ProtoReflect().Descriptor().Oneofs().ByName("kind")).Name(); string(got) != name {
		t.Fatalf("the row of %s has a %s", name, got)
	}
	w := proto.Clone(p.Message).(*wire.Message)
	if !p.Bulk {
		_, err := e.of(to).Unpack(w, from)
		return err
	}
	taken, err := e.of(to).Take(w, lengths(p.Parts), from)
	if err == nil {
		taken.Release()
	}
	return err
}
