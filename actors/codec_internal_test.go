package actors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// hostDevice has memory and runs nothing.
type hostDevice struct{ memory *tensorops.Memory }

func (hostDevice) Name() string                    { return "host" }
func (hostDevice) Path() string                    { return "none" }
func (hostDevice) Close()                          {}
func (d hostDevice) Memory() tensorops.MemoryStats { return d.memory.Stats() }
func (d hostDevice) NewStream(name string) tensorops.Stream {
	return hostStream{d.memory.NewArena(name)}
}

type hostStream struct{ arena tensorops.Arena }

func (s hostStream) NewList() *tensorops.List { return tensorops.NewList(s.arena, nil) }
func (s hostStream) Submit(l *tensorops.List, done func(error)) {
	err := l.Err()
	l.Complete()
	done(err)
}
func (s hostStream) Arena() tensorops.Arena { return s.arena }
func (hostStream) Close()                   {}

// ends are the codecs of a coordinator and of a worker that has rank 0 of two.
type ends struct {
	coordinator, stages *Codec
	header              Header
}

func newEnds(t testing.TB) ends {
	t.Helper()
	spec := Spec{Run: uuid.UUID{1, 2, 3}, Attempt: uuid.UUID{4, 5, 6}, MicrobatchSize: 1, Context: 4, Sequences: 4,
		Hosts: []string{"w0", "w1"}, TiedRanks: []int{0, 1}, Shares: []bool{true, true},
		Copies: func(int) []int { return []int{0, 1} }, Shadows: []int{1, 0},
		WriteShared: func(context.Context, trainstate.State, []stages.Saved, bool, trainstate.Others) (string, error) {
			return "", nil
		}}
	var err error
	if spec.Table, err = scheduler.Generate(scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 4}); err != nil {
		t.Fatal(err)
	}
	if spec.EvalTable, err = scheduler.Generate(scheduler.Spec{Ranks: 2, Chunks: 1, Microbatches: 2, ForwardOnly: true}); err != nil {
		t.Fatal(err)
	}
	tables, err := spec.analyseTables()
	if err != nil {
		t.Fatal(err)
	}
	codec := func(s Spec, takes direction) *Codec {
		l, err := newLocal(s)
		if err != nil {
			t.Fatal(err)
		}
		l.system = actor.NewActorSystem(actor.WithDeadLetterThrottleInterval(time.Nanosecond),
			actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return l.log }))
		l.system.ProcessRegistry.Address = "here"
		l.shutdown = l.system.Shutdown
		t.Cleanup(l.close)
		boss := ""
		if takes == toStages {
			boss = "coordinator"
		}
		return newCodec(l, tables, takes, boss)
	}
	e := ends{coordinator: codec(spec, toCoordinator)}
	spec.Hosts, spec.Device = []string{"", "w1"}, hostDevice{tensorops.NewHostMemory(0)}
	e.stages = codec(spec, toStages)
	e.header = e.coordinator.id.header(7, 9)
	return e
}

// of is the codec that takes what goes in a direction.
func (e ends) of(d direction) *Codec {
	if d == toStages {
		return e.stages
	}
	return e.coordinator
}

// sample is a message with the direction that it goes.
type sample struct {
	to      direction
	message any
}

// from is the process that may send the sample to the one that it is for.
func (s sample) from() string {
	switch s.message.(type) {
	case *Transfer, *TiedGradient, *Credit, *ReadState, *RankState, *StepGradient:
		return "w1"
	}
	if s.to == toStages {
		return "coordinator"
	}
	return "w1"
}

func (e ends) tensor(t testing.TB, dims ...int) tensorops.Tensor {
	t.Helper()
	x, err := tensorops.NewTensor(e.coordinator.host, tensorops.Float32, dims...)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := 0, tensorops.Elements[float32](x); i < len(v); i++ {
		v[i] = float32(i) + 0.5
	}
	return x
}

// half is a tensor of bfloat16.
func (e ends) half(t testing.TB, dims ...int) tensorops.Tensor {
	t.Helper()
	x, err := tensorops.NewTensor(e.coordinator.host, tensorops.BFloat16, dims...)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := 0, tensorops.Elements[uint16](x); i < len(v); i++ {
		v[i] = tensorops.ToBFloat16(float32(i) + 0.5)
	}
	return x
}

// samples has every message that leaves its process, with every field set.
func (e ends) samples(t testing.TB) []sample {
	h := e.header
	pid := func(name string) *actor.PID { return actor.NewPID("coordinator", actorID(h.Attempt, name)) }
	asks := actor.NewPID("w1", actorID(h.Attempt, stageName(1)))
	act := scheduler.Action{Chunk: 1, Type: scheduler.I, Microbatch: 3}
	state := &StageState{Header: h, Rank: 1, Copies: e.coordinator.copies.NewArena("sample")}
	for i, dims := range [][]int{{2, 3}, {1}, {4}} {
		state.Saved = append(state.Saved, stages.Saved{Name: fmt.Sprint("w", i), Index: i, Part: "m", Shape: dims,
			Data: slices.Repeat([]float32{float32(i) + 0.25}, product(dims))})
	}
	frozen := stages.Saved{Name: "frozen", Index: 3, Shape: []int{2, 3}}
	frozen.Hold(e.half(t, 2, 3))
	state.Saved = append(state.Saved, frozen)
	table := e.stages.tables.replicas[0]
	return []sample{
		{toStages, &Peers{Header: h, Scheduler: pid(schedulerName), Loader: pid(loaderName), Checkpoint: pid(checkpointName),
			Stages: []*actor.PID{actor.NewPID("here", actorID(h.Attempt, stageName(0))), actor.NewPID("w1", actorID(h.Attempt, stageName(1)))}}},
		{toStages, &Order{Header: h, Phase: event.Train, Trace: true, Norms: true,
			Speculative: &stages.Update{Count: 3, LR: 0.5, GradScale: 0.25}, Table: e.stages.spec.Table, Credits: table.trainCredits}},
		{toStages, &Order{Header: h, Phase: event.Eval, Table: e.stages.spec.EvalTable, Credits: table.evalCredits}},
		{toStages, &Transfer{Header: h, Kind: scheduler.BackwardEdge, To: 0, Microbatch: 2, Extent: Extent{1, 2, 3, 1},
			Tensor: e.tensor(t, 2, 3, 4)}},
		{toStages, &Transfer{Header: h, Kind: scheduler.BackwardEdge, Tensor: e.tensor(t, 3, 8).Columns(2, 5)}},
		{toStages, &Transfer{Header: h, Kind: scheduler.BackwardEdge, Tensor: e.half(t, 2, 3, 5)}},
		{toStages, &Transfer{Header: h, Kind: scheduler.BackwardEdge, To: 0, Tensor: e.half(t, 3, 8).Columns(2, 5)}},
		{toStages, &Credit{Header: h, Kind: scheduler.ForwardEdge}},
		{toStages, &Data{Header: h, Chunk: 1, Microbatch: 2, Batch: &Batch{Extent: Extent{1, 1, 2, 0}, Tokens: []int32{5, 6},
			Targets: []int32{7, 8}}}},
		{toStages, &Data{Header: h, Batch: &Batch{Extent: Extent{0, 1, 2, 1}, Tokens: []int32{}, Targets: []int32{7, 8}}}},
		{toStages, &Data{Header: h, Chunk: 1, Batch: &Batch{Extent: Extent{0, 1, 3, 0}, Tokens: []int32{}, Targets: []int32{},
			Starts: []int32{0, 0, 2}}}},
		{toStages, &Data{Header: h, Chunk: 1, Batch: &Batch{Extent: Extent{4, 2, 1, 0}, Tokens: []int32{}, Targets: []int32{},
			Fields: []tensorops.Array{
				{Shape: []int{2, 3}, Float: []float32{1, 2, 3, 4, 5, 6}}, {Shape: []int{2}, Int: []int32{7, 8}},
				{Shape: []int{2, 1}, Double: []float64{0.5, 0.25}}}}}},
		{toStages, &TiedGradient{Header: h, From: 1, Grad: stages.TiedGrad{Param: 5, Uses: unpackUses(2), First: 6, Grad: e.tensor(t, 3)}}},
		{toStages, &Apply{Header: h, Skip: true, Update: stages.Update{Count: 3, LR: 0.5, GradScale: 0.25}, Kept: true, Abort: 4}},
		{toStages, &SaveState{Header: h, Keep: true}},
		{toStages, &SaveState{Header: h, Weights: true}},
		{toStages, &WriteState{Header: h, Places: []trainstate.Place{{File: "a", Offset: 5}, {File: "b"}, {File: "a", Offset: 1 << 40}}}},
		{toStages, &SendState{h}},
		{toStages, &DropState{h}},
		{toStages, halt{}},
		{toStages, leave{}},
		{toStages, leave{keep: true}},
		{toStages, &ReadState{Header: h, Request: 3, Rank: 0, Param: "w", Part: "m", ReplyTo: actor.NewPID("w1", SupervisorID(h.Attempt))}},
		{toStages, &ReadState{Header: h, Request: 3, Shadow: 2, Param: "w", ReplyTo: actor.NewPID("w1", SupervisorID(h.Attempt))}},
		{toStages, &ReadState{Header: h, Request: 3, Param: "w", ReplyTo: actor.NewPID("w1", actorID(h.Attempt, stageName(1)))}},
		{toStages, &StepGradient{Header: h, Rank: 1, Grads: []stages.Gradient{{Param: 3, Grad: e.tensor(t, 2, 3)}, {Param: 5,
			Grad: e.tensor(t, 4)}}}},
		{toStages, &StepGradient{Header: h, Rank: 1}},
		{toStages, &RankState{Header: h, Request: 3, Rank: 1, Shadow: 1, Tensor: e.tensor(t, 2, 2)}},
		{toStages, &RankState{Header: h, Request: 3, Rank: 1, Tensor: e.tensor(t, 2, 2)}},
		{toStages, &RankState{Header: h, Request: 3, Rank: 1, Err: &RemoteError{Text: "no such weight"}}},
		{toStages, &Weight{Header: h, Request: 3, Tensor: e.tensor(t, 2, 2)}},
		{toStages, &Weight{Header: h, Request: 3, Err: &RemoteError{Text: "no such weight"}}},
		{toCoordinator, &DataRequest{Header: h, Phase: event.Eval, Chunk: 1, Microbatch: 1, Tokens: true, Targets: true, ReplyTo: asks}},
		{toCoordinator, &DataRequest{Header: h, Phase: event.Train, Chunk: 1, Fields: []string{"x", "y"}, ReplyTo: asks}},
		{toCoordinator, &DataRequest{Header: h, Phase: event.Train, Chunk: 1, Starts: true, ReplyTo: asks}},
		{toCoordinator, &StageDone{Header: h, Rank: 1, Losses: []Loss{{Microbatch: 1,
			Report: stages.Report{Sum: 2.5, Targets: 3, Metrics: []stages.Metric{{Name: "mtp", Sum: 4.5, Count: 1},
				{Name: "all", Sum: 2, Total: true}}}}, {Report: stages.Report{Sum: 1, Targets: 1}}}, Norms: []stages.Norm{{Param: 2, Squared: 0.125}},
			Weights: []stages.Norm{{Param: 3, Squared: 0.25}}, Busy: time.Second,
			Routers: []stages.RouterStats{{Layer: 2, Rows: 8, AuxLoss: 9, Entropy: 1.5, ZLoss: 2.5, Counts: []float64{6, 10}}},
			Trace: []event.ActionTime{{Action: act, Start: time.Unix(1, 2), End: time.Unix(3, 4)}, {Action: scheduler.Action{Chunk: 1,
				Type: scheduler.F, Overlap: true}, Start: time.Unix(3, 5), End: time.Unix(3, 9), Parts: partsOf(time.Unix(3, 5))}}}},
		{toCoordinator, &Applied{h, 1}},
		{toCoordinator, state},
		{toCoordinator, &StageState{Header: h, Rank: 1, Kept: true, Saved: []stages.Saved{{Name: "w", Index: 3, Part: "m", Shape: []int{2, 3}},
			{Name: "frozen", Shape: []int{2}, DType: tensorops.BFloat16}}}},
		{toCoordinator, &StateWritten{Header: h, Rank: 1, Sums: []uint32{1, 2}}},
		{toCoordinator, &StateWritten{Header: h, Rank: 1, Err: &RemoteError{Text: "no such folder"}}},
		{toCoordinator, &StageReady{h, 1, 1 << 40}},
		{toCoordinator, &Shadowed{h, 0}},
		{toCoordinator, &Failed{Header: h, Actor: "stage 1", Err: &RemoteError{Text: "it broke"}}},
		{toCoordinator, &Failed{Header: h, Actor: "stage 1", Err: &RemoteError{"it is full", tensorops.ErrOutOfMemory}}},
		{toCoordinator, &Failed{Header: h, Actor: "stage 1", Err: &Panic{Value: "oh", Stack: []byte("here")}}},
		{toCoordinator, &halted{1}},
		{toCoordinator, &left{1}},
		{toCoordinator, &ReadWeight{Header: h, Request: 3, Param: "w", Part: "m", ReplyTo: actor.NewPID("w1", SupervisorID(h.Attempt))}},
	}
}

// partsOf are the times of two parts of a forward.
func partsOf(at time.Time) []scheduler.PartTime {
	return []scheduler.PartTime{{Start: at, End: at.Add(2), Exchange: scheduler.FD, Sent: at.Add(1), Came: at.Add(3)},
		{Start: at.Add(3), End: at.Add(4)}}
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// numbers takes the tensors out of a message, as bytes, and what differs without meaning.
func numbers(m any) [][]byte {
	tensor := func(x *tensorops.Tensor) [][]byte {
		all := [][]byte{fmt.Append(nil, x.Valid())}
		if x.Valid() {
			all = [][]byte{fmt.Append(nil, x.DType(), x.Shape()), bytes.Join(tensorops.Runs(*x), nil)}
		}
		*x = tensorops.Tensor{}
		return all
	}
	switch m := m.(type) {
	case *Transfer:
		return tensor(&m.Tensor)
	case *TiedGradient:
		return tensor(&m.Grad.Grad)
	case *Weight:
		return tensor(&m.Tensor)
	case *RankState:
		return tensor(&m.Tensor)
	case *StepGradient:
		var all [][]byte
		for i := range m.Grads {
			all = append(all, tensor(&m.Grads[i].Grad)...)
		}
		return all
	case *Data:
		m.Batch.pool = nil
		m.Batch.Tokens, m.Batch.Targets = append([]int32{}, m.Batch.Tokens...), append([]int32{}, m.Batch.Targets...)
		m.Batch.Starts = append([]int32(nil), m.Batch.Starts...)
	case *StageState:
		m.Copies = nil
	}
	return nil
}

// over packs a message, writes it as bytes, and takes what comes of it.
func over(t testing.TB, out, in *Codec, m any, from string) (any, error) {
	t.Helper()
	p, err := out.Pack(m)
	if err != nil {
		t.Fatal(err)
	}
	text, err := proto.Marshal(p.Message)
	if err != nil {
		t.Fatal(err)
	}
	var w wire.Message
	if err := proto.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	if !p.Bulk {
		if len(p.Parts) > 0 {
			t.Errorf("%T has parts and goes the way of control", m)
		}
		return in.Unpack(&w, from)
	}
	if _, err := in.Unpack(&w, from); !errors.Is(err, ErrMessage) {
		t.Errorf("Unpack takes a %T: %v", m, err)
	}
	taken, err := in.Take(&w, lengths(p.Parts), from)
	for i := range taken.Parts {
		copy(taken.Parts[i], p.Parts[i])
	}
	return taken.Message, err
}

func lengths(parts [][]byte) []int {
	lens := make([]int, len(parts))
	for i, p := range parts {
		lens[i] = len(p)
	}
	return lens
}

// TestEveryMessageSurvives: what goes to another process comes out there as it went in, and
// is refused where it doesn't belong.
func TestEveryMessageSurvives(t *testing.T) {
	e := newEnds(t)
	kinds := make(map[string]bool)
	for _, s := range e.samples(t) {
		t.Run(fmt.Sprintf("%T", s.message), func(t *testing.T) {
			from := toStages + toCoordinator - s.to
			p, err := e.of(from).Pack(s.message)
			if err != nil {
				t.Fatal(err)
			}
			kinds[fmt.Sprintf("%T", p.Message.Kind)] = true
			got, err := over(t, e.of(from), e.of(s.to), s.message, s.from())
			if err != nil {
				t.Fatal(err)
			}
			if a, b := numbers(got), numbers(s.message); !reflect.DeepEqual(a, b) {
				t.Errorf("its numbers are %q, went as %q", a, b)
			}
			if !reflect.DeepEqual(got, s.message) {
				t.Errorf("came as %+v, went as %+v", got, s.message)
			}
		})
	}
	if n := (&wire.Message{}).ProtoReflect().Descriptor().Oneofs().Get(0).Fields().Len(); len(kinds) != n {
		t.Errorf("%d kinds were tried, there are %d: %v", len(kinds), n, kinds)
	}
	for _, s := range e.samples(t) {
		if got, err := over(t, e.of(s.to), e.of(toStages+toCoordinator-s.to), s.message, s.from()); !errors.Is(err, ErrMessage) {
			t.Errorf("%T is taken where it was sent: %+v, %v", s.message, got, err)
		}
	}
}

// TestHalfTheBytes: a tensor of bfloat16 takes half the bytes of one of float32 on its way.
func TestHalfTheBytes(t *testing.T) {
	e := newEnds(t)
	bytes := func(x tensorops.Tensor) (n int) {
		p, err := e.stages.Pack(&Transfer{Header: e.header, Kind: scheduler.ForwardEdge, To: 1, Tensor: x})
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range p.Parts {
			n += len(part)
		}
		return n
	}
	if whole, half := bytes(e.tensor(t, 4, 32, 64)), bytes(e.half(t, 4, 32, 64)); whole != 4*4*32*64 || half != whole/2 {
		t.Errorf("%d bytes in bfloat16, %d in float32", half, whole)
	}
}

// TestPackIsValid: whatever a failure's text is, the message that carries it can be sent.
func TestPackIsValid(t *testing.T) {
	e := newEnds(t)
	long := "\xff\x00" + string(bytes.Repeat([]byte("é"), limitText))
	for _, m := range []any{
		&Failed{Header: e.header, Actor: "stage 1", Err: errors.New(long)},
		&Failed{Header: e.header, Actor: "stage 1", Err: &Panic{Value: long, Stack: []byte(long)}},
	} {
		if _, err := over(t, e.stages, e.coordinator, m, "w1"); err != nil {
			t.Error(err)
		}
	}
	if _, err := over(t, e.coordinator, e.stages, &Weight{Header: e.header, Err: errors.New(long)}, "coordinator"); err != nil {
		t.Error(err)
	}
}

// fuzzedWays are those that a fuzzed message may come.
var fuzzedWays = []struct {
	to   direction
	from string
}{{toStages, "coordinator"}, {toStages, "w1"}, {toCoordinator, "w1"}}

// FuzzUnpack: whatever comes as a control message, it is refused or is a message.
func FuzzUnpack(f *testing.F) {
	e := newEnds(f)
	for _, s := range e.samples(f) {
		p, err := e.of(toStages + toCoordinator - s.to).Pack(s.message)
		if err != nil {
			f.Fatal(err)
		}
		text, err := proto.Marshal(p.Message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var w wire.Message
		if proto.Unmarshal(text, &w) != nil {
			return
		}
		for _, way := range fuzzedWays {
			d, from := way.to, way.from
			m, err := e.of(d).Unpack(&w, from)
			if err != nil {
				if !errors.Is(err, ErrMessage) {
					t.Errorf("refused for %v", err)
				}
				continue
			}
			// What was taken can be sent on, and is then the same.
			again, err := over(t, e.of(toStages+toCoordinator-d), e.of(d), m, from)
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			a, errA := e.of(toStages + toCoordinator - d).Pack(m)
			b, errB := e.of(toStages + toCoordinator - d).Pack(again)
			if err := errors.Join(errA, errB); err != nil || !proto.Equal(a.Message, b.Message) {
				t.Errorf("%v, the second time %v: %v", a.Message, b.Message, err)
			}
		}
	})
}

// limitFuzzBytes bounds what a fuzzed message may say comes behind it.
const limitFuzzBytes = 1 << 20

// FuzzTake: whatever comes with numbers behind it, it is refused, or has room for these
// numbers, takes no more memory than they, and gives it back.
func FuzzTake(f *testing.F) {
	e := newEnds(f)
	for _, s := range e.samples(f) {
		p, err := e.of(toStages + toCoordinator - s.to).Pack(s.message)
		if err != nil {
			f.Fatal(err)
		}
		text, err := proto.Marshal(p.Message)
		if err != nil {
			f.Fatal(err)
		}
		var lens []byte
		for _, n := range lengths(p.Parts) {
			lens = binary.LittleEndian.AppendUint32(lens, uint32(n))
		}
		f.Add(text, lens)
	}
	f.Fuzz(func(t *testing.T, text, at []byte) {
		var w wire.Message
		var lens []int
		total := 0
		for ; len(at) >= 4; at = at[4:] {
			n := int(binary.LittleEndian.Uint32(at)) % limitFuzzBytes
			if total += n; total > limitFuzzBytes {
				return
			}
			lens = append(lens, n)
		}
		if proto.Unmarshal(text, &w) != nil {
			return
		}
		for _, way := range fuzzedWays {
			c, from := e.of(way.to), way.from
			c.batches = &batchPool{}
			in := func() int64 { return c.memory.Stats().InUse + c.copies.Stats().InUse }
			before := in()
			taken, err := c.Take(&w, lens, from)
			parts, m, release := taken.Parts, taken.Message, taken.Release
			if err != nil {
				if !errors.Is(err, ErrMessage) {
					t.Errorf("refused for %v", err)
				}
				if in() != before {
					t.Errorf("%d bytes are held by a message that was refused", in()-before)
				}
				continue
			}
			if !slices.Equal(lengths(parts), lens) {
				t.Errorf("parts of %d bytes come, there is room for %d", lens, lengths(parts))
			}
			held := in() - before
			if b, ok := m.(*Data); ok {
				held += 4 * int64(cap(b.Batch.Tokens)+cap(b.Batch.Targets)+cap(b.Batch.Starts))
			}
			if most := int64(total+total/8) + 256*int64(len(lens)+1); held > most {
				t.Errorf("%d bytes are taken for %d in %d parts", held, total, len(lens))
			}
			for _, p := range parts {
				for i := range p {
					p[i] = 0xee
				}
			}
			release()
			if in() != before {
				t.Errorf("%d bytes are not given back", in()-before)
			}
		}
	})
}

// FuzzSnapshot: what another process says that its actors do can be shown.
func FuzzSnapshot(f *testing.F) {
	act := scheduler.Action{Chunk: 1, Type: scheduler.B, Microbatch: 3}
	for d := range event.Failing + 1 {
		for w := event.WaitNothing; w <= event.WaitRoom; w++ {
			text, err := proto.Marshal(PackSnapshot(event.Snapshot{Actor: schedulerName, Rank: -1, Step: 3, Phase: event.Train, Doing: d,
				Action: act, Wait: w, Needs: act, From: "stage 0", Held: 1, Need: 2, Since: time.Unix(5, 6)}, right))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var w wire.Snapshot
		if proto.Unmarshal(text, &w) != nil {
			return
		}
		s, err := UnpackSnapshot(&w)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Errorf("refused for %v", err)
			}
			return
		}
		again, err := UnpackSnapshot(PackSnapshot(s, right))
		if err != nil || again != s {
			t.Errorf("%+v, the second time %+v: %v", s, again, err)
		}
		for _, host := range []string{"", "w"} {
			s.Host = host
			if s.Describe() == "" {
				t.Error("it is described by nothing")
			}
			_ = event.Status{Time: time.Unix(9, 0), Actors: []event.Snapshot{{Actor: schedulerName, Wait: event.WaitStages, From: s.Actor},
				s}}.String()
		}
	})
}

// TestTransferWithinGroup: a transfer without a tensor is for a rank of a tensor group alone, whose first one gets
// the numbers.
func TestTransferWithinGroup(t *testing.T) {
	e := newEnds(t)
	p, err := e.coordinator.Pack(&Transfer{Header: e.header, Kind: scheduler.BackwardEdge, To: 0, Rank: 0})
	if err != nil || !p.Bulk || len(p.Parts) > 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := e.stages.Take(p.Message, nil, "w1"); !errors.Is(err, ErrMessage) {
		t.Errorf("of a rank alone: %v, want ErrMessage", err)
	}
	spec := &e.stages.spec
	if spec.Grid, err = grid.New(grid.Sizes{Tensor: []int{2, 1}, Pipeline: 2}); err != nil {
		t.Fatal(err)
	}
	spec.Hosts = []string{"", "", "w1"}
	e.stages.neighbours = e.stages.findNeighbours
	taken, err := e.stages.Take(p.Message, nil, "w1")
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := taken.Message.(*Transfer); !ok || m.Tensor.Valid() || len(taken.Parts) > 0 {
		t.Errorf("%+v", taken)
	}
	taken.Release()
	p.Message.GetTransfer().Part = 3
	if _, err := e.stages.Take(p.Message, nil, "w1"); !errors.Is(err, ErrMessage) {
		t.Errorf("piece 3 of 3 ranks: %v, want ErrMessage", err)
	}
}

// right is a clock that nobody sets.
func right(t time.Time) time.Time { return t }
