package actors

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// ErrMessage: something from another process is not a message for an actor of this process.
var ErrMessage = errors.New("not a message for this process")

// Codec encodes the messages of one attempt for other processes and decodes theirs. It knows the
// tables, so that orders travel without them. It is safe for concurrent use.
type Codec struct {
	*local
	tables     tables
	takes      direction
	boss       string // the coordinator's address; "": this process is the coordinator
	batches    *batchPool
	stages     func() []*actor.PID
	neighbours func() neighbours
}

// direction says which messages a process takes from others.
type direction uint8

const (
	toCoordinator direction = iota + 1
	toStages
)

// newCodec makes the codec of a process that receives messages of the coordinator, whose address is
// boss, or of stages.
func newCodec(l *local, t tables, takes direction, boss string) *Codec {
	c := &Codec{local: l, tables: t, takes: takes, boss: boss, batches: &batchPool{}}
	c.stages, c.neighbours = sync.OnceValue(c.stagePIDs), sync.OnceValue(c.findNeighbours)
	return c
}

// Attempt returns the id of the attempt.
func (c *Codec) Attempt() uuid.UUID { return c.id.attempt }

// Packed is an encoded message for another process.
type Packed struct {
	Message *wire.Message
	// Parts are the numbers that follow the message, little-endian. Their memory must not change
	// until Release is called, exactly once. A message without numbers is a control message.
	Parts [][]byte
	// Pieces are the numbers, in place of Parts, if they are on a device that the host cannot
	// address. They must not change until Release, either.
	Pieces  *tensorops.Pieces
	Release func()
	Bulk    bool // it travels over the tensor connection, even without numbers
}

// Pack encodes a message for another process. It fails with ErrMessage for a message that never
// leaves its process.
func (c *Codec) Pack(m any) (p Packed, err error) {
	w := &wire.Message{}
	p.Message, p.Release = w, func() {}
	h := c.id.header(0, 0)
	switch m := m.(type) {
	case *Peers:
		h = m.Header
		w.Kind = &wire.Message_Peers{Peers: &wire.Peers{Scheduler: packPID(m.Scheduler), Loader: packPID(m.Loader),
			Checkpoint: packPID(m.Checkpoint), Ranks: int32(len(m.Stages))}}
	case *Order:
		h = m.Header
		w.Kind = &wire.Message_Order{Order: &wire.Order{Phase: uint32(m.Phase), Trace: m.Trace, Norms: m.Norms,
			Speculative: packUpdate(m.Speculative), Replica: uint32(m.Replica)}}
	case *Transfer:
		h, p.Bulk = m.Header, true
		w.Kind = &wire.Message_Transfer{Transfer: &wire.Transfer{Edge: uint32(m.Kind), To: m.To, Rank: m.Rank, Microbatch: m.Microbatch,
			Slot: m.Slot, Part: m.Part, Extent: packExtent(m.Extent), Tensor: packTensor(m.Tensor)}}
		p.numbers(m.Tensor)
		p.Release = m.release
	case *Credit:
		h = m.Header
		w.Kind = &wire.Message_Credit{Credit: &wire.Credit{Edge: uint32(m.Kind), Chunk: m.Edge, Skip: m.Skip}}
	case *DataRequest:
		h = m.Header
		w.Kind = &wire.Message_DataRequest{DataRequest: &wire.DataRequest{Phase: uint32(m.Phase), Chunk: m.Chunk, Microbatch: m.Microbatch,
			Tokens: m.Tokens, Targets: m.Targets, Starts: m.Starts, Fields: m.Fields, ReplyTo: packPID(m.ReplyTo)}}
	case *Data:
		h, p.Bulk = m.Header, true
		b := m.Batch
		w.Kind = &wire.Message_Data{Data: &wire.Data{Chunk: m.Chunk, Microbatch: m.Microbatch, Extent: packExtent(b.Extent),
			Tokens: int64(len(b.Tokens)), Targets: int64(len(b.Targets)), Starts: int64(len(b.Starts))}}
		p.Parts, p.Release = b.parts(), m.release
		for _, f := range b.Fields {
			w.GetData().Fields = append(w.GetData().Fields, &wire.Tensor{Dtype: uint32(f.DType()), Dims: packDims(f.Shape)})
			p.Parts = append(p.Parts, f.Bytes())
		}
	case *TiedGradient:
		h, p.Bulk = m.Header, true
		w.Kind = &wire.Message_TiedGradient{TiedGradient: &wire.TiedGradient{From: m.From, Param: int32(m.Grad.Param),
			Uses: packUses(m.Grad.Uses), First: int64(m.Grad.First), Tensor: packTensor(m.Grad.Grad)}}
		p.numbers(m.Grad.Grad)
		p.Release = m.release
	case *StageDone:
		h = m.Header
		w.Kind = &wire.Message_StageDone{StageDone: packStageDone(m, c.wallNs)}
	case *Apply:
		h = m.Header
		w.Kind = &wire.Message_Apply{Apply: &wire.Apply{Skip: m.Skip, Update: packUpdate(&m.Update), Kept: m.Kept, Abort: m.Abort}}
	case *Applied:
		h = m.Header
		w.Kind = &wire.Message_Applied{Applied: &wire.Applied{Rank: int32(m.Rank)}}
	case *SaveState:
		h = m.Header
		w.Kind = &wire.Message_SaveState{SaveState: &wire.SaveState{Keep: m.Keep, Weights: m.Weights}}
	case *WriteState:
		h = m.Header
		w.Kind = &wire.Message_WriteState{WriteState: packPlaces(m.Places)}
	case *StateWritten:
		h = m.Header
		s := &wire.StateWritten{Rank: int32(m.Rank), Sums: m.Sums}
		if m.Err != nil {
			s.Error = cut(m.Err.Error())
		}
		w.Kind = &wire.Message_StateWritten{StateWritten: s}
	case *SendState:
		h = m.Header
		w.Kind = &wire.Message_SendState{SendState: &wire.SendState{}}
	case *DropState:
		h = m.Header
		w.Kind = &wire.Message_DropState{DropState: &wire.DropState{}}
	case *StageState:
		h, p.Bulk = m.Header, true
		s := &wire.StageState{Rank: int32(m.Rank), Kept: m.Kept}
		for _, v := range m.Saved {
			s.Saved = append(s.Saved, &wire.Saved{Name: v.Name, Index: int32(v.Index), Part: v.Part, Dims: packDims(v.Shape), Dtype: uint32(v.DType),
				Slice: packSlice(v)})
			if !m.Kept {
				p.Parts = append(p.Parts, v.Bytes())
			}
		}
		w.Kind, p.Release = &wire.Message_StageState{StageState: s}, m.release
	case *StageReady:
		h = m.Header
		w.Kind = &wire.Message_StageReady{StageReady: &wire.StageReady{Rank: int32(m.Rank), Read: m.Read}}
	case *Failed:
		h = m.Header
		w.Kind = &wire.Message_Failed{Failed: packFailure(m)}
	case halt:
		w.Kind = &wire.Message_Halt{Halt: &wire.Halt{}}
	case *halted:
		w.Kind = &wire.Message_Halted{Halted: &wire.Halted{Rank: int32(m.rank)}}
	case leave:
		w.Kind = &wire.Message_Leave{Leave: &wire.Leave{Keep: m.keep}}
	case *left:
		w.Kind = &wire.Message_Left{Left: &wire.Left{Rank: int32(m.rank)}}
	case *ReadWeight:
		h = m.Header
		w.Kind = &wire.Message_ReadWeight{ReadWeight: &wire.ReadWeight{Request: m.Request, Name: m.Param, Part: m.Part,
			ReplyTo: packPID(m.ReplyTo)}}
	case *Weight:
		h, p.Bulk = m.Header, true
		v := &wire.Weight{Request: m.Request}
		if m.Err != nil {
			v.Error = cut(m.Err.Error())
		} else {
			v.Tensor, p.Parts = packTensor(m.Tensor), tensorops.Runs(m.Tensor)
		}
		w.Kind, p.Release = &wire.Message_Weight{Weight: v}, m.release
	case *ReadState:
		h = m.Header
		w.Kind = &wire.Message_ReadState{ReadState: &wire.ReadState{Request: m.Request, Rank: int32(m.Rank), Shadow: int32(m.Shadow),
			Name: m.Param, Part: m.Part, ReplyTo: packPID(m.ReplyTo)}}
	case *RankState:
		h, p.Bulk = m.Header, true
		v := &wire.RankState{Request: m.Request, Rank: int32(m.Rank), Shadow: int32(m.Shadow)}
		if m.Err != nil {
			v.Error = cut(m.Err.Error())
		} else {
			v.Tensor, p.Parts = packTensor(m.Tensor), tensorops.Runs(m.Tensor)
		}
		w.Kind, p.Release = &wire.Message_RankState{RankState: v}, m.release
	case *StepGradient:
		h, p.Bulk = m.Header, true
		g := &wire.StepGradient{Rank: int32(m.Rank)}
		for _, v := range m.Grads {
			g.Params, g.Tensors = append(g.Params, int32(v.Param)), append(g.Tensors, packTensor(v.Grad))
			p.Parts = append(p.Parts, tensorops.Bytes(v.Grad))
		}
		w.Kind, p.Release = &wire.Message_StepGradient{StepGradient: g}, m.release
	case *Shadowed:
		h = m.Header
		w.Kind = &wire.Message_Shadowed{Shadowed: &wire.Shadowed{Rank: int32(m.Rank)}}
	default:
		return p, fmt.Errorf("%w: a %T cannot be sent to another process", ErrMessage, m)
	}
	w.Header = packHeader(h)
	return p, nil
}

func packHeader(h Header) *wire.Header {
	return &wire.Header{Run: h.Run[:], Attempt: h.Attempt[:], Step: h.Step, Order: h.Order}
}

func packPID(p *actor.PID) *wire.Pid {
	if p == nil {
		return nil
	}
	return &wire.Pid{Address: p.Address, Id: p.Id}
}

func packUpdate(u *stages.Update) *wire.Update {
	if u == nil {
		return nil
	}
	return &wire.Update{Count: int64(u.Count), Lr: u.LR, GradScale: u.GradScale}
}

func packExtent(e Extent) *wire.Extent {
	return &wire.Extent{FirstSequence: int64(e.FirstSequence), Sequences: int64(e.Sequences), Positions: int64(e.Positions),
		Extra: int64(e.Extra)}
}

func packAction(a scheduler.Action) *wire.Action {
	return &wire.Action{Chunk: a.Chunk, Type: uint32(a.Type), Microbatch: a.Microbatch}
}

func packDims(shape []int) []int64 {
	dims := make([]int64, len(shape))
	for i, d := range shape {
		dims[i] = int64(d)
	}
	return dims
}

func packTensor(t tensorops.Tensor) *wire.Tensor {
	if !t.Valid() {
		return nil
	}
	return &wire.Tensor{Dtype: uint32(t.DType()), Dims: packDims(t.Shape())}
}

// numbers adds the numbers of a tensor, wherever they are.
func (p *Packed) numbers(t tensorops.Tensor) {
	var ok bool
	if p.Pieces, ok = tensorops.Leaving(t); !ok {
		p.Parts = tensorops.Runs(t)
	}
}

// wallNs returns what this process's clock shows at a time, in nanoseconds.
func (c *Codec) wallNs(t time.Time) int64 {
	if c.spec.Wall != nil {
		return c.spec.Wall(t).UnixNano()
	}
	return clock.At(t).UnixNano()
}

func packStageDone(m *StageDone, wallNs func(time.Time) int64) *wire.StageDone {
	d := &wire.StageDone{Rank: int32(m.Rank), BusyNs: int64(m.Busy)}
	for _, l := range m.Losses {
		loss := &wire.Loss{Microbatch: int32(l.Microbatch), Sum: l.Sum, Targets: l.Targets}
		for _, v := range l.Metrics {
			loss.Metrics = append(loss.Metrics, &wire.Metric{Name: v.Name, Sum: v.Sum, Count: v.Count, Total: v.Total})
		}
		d.Losses = append(d.Losses, loss)
	}
	for _, n := range m.Norms {
		d.Norms = append(d.Norms, &wire.Norm{Param: int32(n.Param), Squared: n.Squared})
	}
	for _, n := range m.Weights {
		d.Weights = append(d.Weights, &wire.Norm{Param: int32(n.Param), Squared: n.Squared})
	}
	for _, r := range m.Routers {
		d.Routers = append(d.Routers, &wire.Router{Layer: int32(r.Layer), Rows: r.Rows, AuxLoss: r.AuxLoss, Entropy: r.Entropy,
			ZLoss: r.ZLoss, Counts: r.Counts})
	}
	if len(m.Trace) > 0 {
		d.Trace = PackActions(m.Trace, func(t time.Time) time.Time { return time.Unix(0, wallNs(t)) })
	}
	return d
}

// packPlaces encodes places and names each file once.
func packPlaces(places []trainstate.Place) *wire.WriteState {
	w, number := &wire.WriteState{}, make(map[string]uint32)
	for _, p := range places {
		n, known := number[p.File]
		if !known {
			n = uint32(len(w.Files))
			number[p.File], w.Files = n, append(w.Files, p.File)
		}
		w.File, w.Offset = append(w.File, n), append(w.Offset, p.Offset)
	}
	return w
}

// failures maps the errors on which callers of a run branch to their names on the wire.
var failures = map[string]error{
	"out_of_memory": tensorops.ErrOutOfMemory,
	"shape":         tensorops.ErrShape,
}

func packFailure(m *Failed) *wire.Failed {
	f := &wire.Failed{Actor: cut(m.Actor), Error: cut(m.Err.Error())}
	for name, err := range failures {
		if errors.Is(m.Err, err) {
			f.Kind = name
		}
	}
	var p *Panic
	if errors.As(m.Err, &p) {
		f.Error, f.Stack = cut(fmt.Sprint(p.Value)), cut(string(p.Stack))
	}
	return f
}

// RemoteError is a failure in another process.
type RemoteError struct {
	Text string
	kind error
}

func (e *RemoteError) Error() string { return e.Text }
func (e *RemoteError) Unwrap() error { return e.kind }

// packSlice encodes the part of a tensor; nil: the whole tensor.
func packSlice(v stages.Saved) *wire.Slice {
	if v.Whole == nil {
		return nil
	}
	s := v.Slice
	return &wire.Slice{Whole: packDims(v.Whole), Dim: int32(s.Dim), Sections: int32(s.Sections), From: int64(s.From), To: int64(s.To),
		First: int64(s.First), Limit: int64(s.Limit)}
}
