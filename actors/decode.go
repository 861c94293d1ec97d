package actors

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

const limitText = 1 << 16 // limit of a text from another process, in bytes: an error, a stack, a name

// Unpack decodes a message without numbers from the process at an address, which the carrier has
// authenticated. It checks everything in the message: another process may be faulty or malicious.
func (c *Codec) Unpack(w *wire.Message, from string) (any, error) {
	h, err := c.header(w)
	if err == nil {
		err = c.checkSender(w, from, false)
	}
	if err != nil {
		return nil, err
	}
	if c.takes == toStages {
		return c.unpackForStage(h, w, from)
	}
	return c.unpackForCoordinator(h, w, from)
}

// unpackForStage decodes a message of a coordinator or another stage to a stage. Answers go to the sender.
func (c *Codec) unpackForStage(h Header, w *wire.Message, from string) (any, error) {
	switch k := w.Kind.(type) {
	case *wire.Message_Peers:
		return c.peers(h, k.Peers)
	case *wire.Message_Order:
		return c.order(h, k.Order)
	case *wire.Message_Credit:
		return &Credit{Header: h, Kind: scheduler.EdgeKind(k.Credit.GetEdge()), Edge: k.Credit.GetChunk(), Skip: k.Credit.GetSkip()}, nil
	case *wire.Message_Apply:
		return &Apply{Header: h, Skip: k.Apply.GetSkip(), Update: unpackUpdate(k.Apply.GetUpdate()), Kept: k.Apply.GetKept(),
			Abort: k.Apply.GetAbort()}, nil
	case *wire.Message_SaveState:
		return &SaveState{Header: h, Keep: k.SaveState.GetKeep(), Weights: k.SaveState.GetWeights()}, nil
	case *wire.Message_WriteState:
		places, err := unpackPlaces(k.WriteState)
		return &WriteState{Header: h, Places: places}, err
	case *wire.Message_SendState:
		return &SendState{h}, nil
	case *wire.Message_DropState:
		return &DropState{h}, nil
	case *wire.Message_Halt:
		return halt{}, nil
	case *wire.Message_Leave:
		return leave{keep: k.Leave.GetKeep()}, nil
	case *wire.Message_ReadState:
		r := k.ReadState
		return &ReadState{Header: h, Request: r.GetRequest(), Rank: int(r.GetRank()), Shadow: int(r.GetShadow()), Param: cut(r.GetName()),
			Part: cut(r.GetPart()), ReplyTo: actor.NewPID(from, r.GetReplyTo().GetId())}, nil
	}
	return nil, fmt.Errorf("%w: a stage does not take %T", ErrMessage, w.Kind)
}

// unpackForCoordinator decodes a message of a stage to the coordinator. Answers go to the sender,
// whatever address the message names.
func (c *Codec) unpackForCoordinator(h Header, w *wire.Message, from string) (any, error) {
	switch k := w.Kind.(type) {
	case *wire.Message_DataRequest:
		r := k.DataRequest
		if n := len(r.GetFields()); n > stages.MaxFields {
			return nil, fmt.Errorf("%w: a request for %d fields; the limit is %d", ErrMessage, n, stages.MaxFields)
		}
		return &DataRequest{Header: h, Phase: event.Phase(r.GetPhase()), Chunk: r.GetChunk(), Microbatch: r.GetMicrobatch(),
			Tokens: r.GetTokens(), Targets: r.GetTargets(), Starts: r.GetStarts(), Fields: r.GetFields(),
			ReplyTo: actor.NewPID(from, r.GetReplyTo().GetId())}, nil
	case *wire.Message_StageDone:
		return c.stageDone(h, k.StageDone)
	case *wire.Message_Applied:
		rank, err := c.remoteRank(k.Applied.GetRank())
		return &Applied{Header: h, Rank: rank}, err
	case *wire.Message_StageReady:
		rank, err := c.remoteRank(k.StageReady.GetRank())
		return &StageReady{Header: h, Rank: rank, Read: max(0, k.StageReady.GetRead())}, err
	case *wire.Message_Shadowed:
		rank, err := c.remoteRank(k.Shadowed.GetRank())
		return &Shadowed{Header: h, Rank: rank}, err
	case *wire.Message_StateWritten:
		rank, err := c.remoteRank(k.StateWritten.GetRank())
		m := &StateWritten{Header: h, Rank: rank, Sums: k.StateWritten.GetSums()}
		if text := k.StateWritten.GetError(); text != "" {
			m.Err = &RemoteError{Text: cut(text)}
		}
		return m, err
	case *wire.Message_Failed:
		return &Failed{Header: h, Actor: cut(k.Failed.GetActor()), Err: unpackFailure(k.Failed)}, nil
	case *wire.Message_Halted:
		rank, err := c.remoteRank(k.Halted.GetRank())
		return &halted{rank}, err
	case *wire.Message_Left:
		rank, err := c.remoteRank(k.Left.GetRank())
		return &left{rank}, err
	case *wire.Message_ReadWeight:
		r := k.ReadWeight
		return &ReadWeight{Header: h, Request: r.GetRequest(), Param: cut(r.GetName()), Part: cut(r.GetPart()),
			ReplyTo: actor.NewPID(from, r.GetReplyTo().GetId())}, nil
	}
	return nil, fmt.Errorf("%w: the coordinator does not take %T", ErrMessage, w.Kind)
}

func (c *Codec) header(w *wire.Message) (Header, error) {
	h := w.GetHeader()
	run, err := uuid.FromBytes(h.GetRun())
	if err != nil {
		return Header{}, fmt.Errorf("%w: the run's id has %d bytes, want 16", ErrMessage, len(h.GetRun()))
	}
	attempt, err := uuid.FromBytes(h.GetAttempt())
	if err != nil {
		return Header{}, fmt.Errorf("%w: the attempt's id has %d bytes, want 16", ErrMessage, len(h.GetAttempt()))
	}
	m := Header{Run: run, Attempt: attempt, Step: h.GetStep(), Order: h.GetOrder()}
	if !c.id.accepts(m) {
		return m, fmt.Errorf("%w: it belongs to attempt %v of run %v, but this process has attempt %v of run %v", ErrMessage, attempt, run,
			c.id.attempt, c.id.run)
	}
	if m.Step < 0 || m.Order < 0 {
		return m, fmt.Errorf("%w: impossible step %d or order %d", ErrMessage, m.Step, m.Order)
	}
	return m, nil
}

// peers returns the coordinator's actors, and the stages that this process already knows.
func (c *Codec) peers(h Header, p *wire.Peers) (any, error) {
	if int(p.GetRanks()) != c.spec.ranks() {
		return nil, fmt.Errorf("%w: the peers have %d stages, but the grid has %d ranks", ErrMessage, p.GetRanks(), c.spec.ranks())
	}
	m := &Peers{Header: h, Stages: c.stages()}
	for name, at := range map[string]struct {
		from *wire.Pid
		to   **actor.PID
	}{schedulerName: {p.GetScheduler(), &m.Scheduler}, loaderName: {p.GetLoader(), &m.Loader},
		checkpointName: {p.GetCheckpoint(), &m.Checkpoint}} {
		if at.from.GetId() != actorID(c.id.attempt, name) {
			return nil, fmt.Errorf("%w: the actor %s has the unexpected id %.100q", ErrMessage, name, at.from.GetId())
		}
		*at.to = actor.NewPID(c.boss, at.from.GetId())
	}
	return m, nil
}

// stagePIDs returns the stages under their addresses in this process. All stages here share the
// list: with one list for each, memory would grow with the square of their number.
func (c *Codec) stagePIDs() []*actor.PID {
	all := make([]*actor.PID, c.spec.ranks())
	for rank := range all {
		host := c.spec.host(rank)
		if host == "" {
			host = c.system.Address()
		}
		all[rank] = actor.NewPID(host, actorID(c.id.attempt, c.spec.stageName(rank)))
	}
	return all
}

func (c *Codec) order(h Header, o *wire.Order) (any, error) {
	m := &Order{Header: h, Phase: event.Phase(o.GetPhase()), Trace: o.GetTrace(), Norms: o.GetNorms()}
	if n := len(c.tables.replicas); int64(o.GetReplica()) >= int64(n) {
		return nil, fmt.Errorf("%w: an order for replica %d, but there are %d replicas", ErrMessage, o.GetReplica(), n)
	}
	if u := o.GetSpeculative(); u != nil {
		update := unpackUpdate(u)
		m.Speculative = &update
	}
	if m.Phase != event.Train && (m.Phase != event.Eval || c.spec.EvalTable == nil) {
		return nil, fmt.Errorf("%w: an order for the unknown phase %d", ErrMessage, o.GetPhase())
	}
	return c.tables.order(&c.spec, int(o.GetReplica()), *m), nil
}

func (c *Codec) stageDone(h Header, d *wire.StageDone) (any, error) {
	rank, err := c.remoteRank(d.GetRank())
	if err != nil {
		return nil, err
	}
	m := &StageDone{Header: h, Rank: rank, Busy: time.Duration(d.GetBusyNs())}
	for _, l := range d.GetLosses() {
		loss := Loss{Microbatch: int(l.GetMicrobatch()), Report: stages.Report{Sum: l.GetSum(), Targets: l.GetTargets()}}
		for _, v := range l.GetMetrics() {
			if len(loss.Metrics) == stages.MaxMetrics {
				return nil, fmt.Errorf("%w: a report has more than %d metrics", ErrMessage, stages.MaxMetrics)
			}
			loss.Metrics = append(loss.Metrics, stages.Metric{Name: cut(v.GetName()), Sum: v.GetSum(), Count: v.GetCount(), Total: v.GetTotal()})
		}
		m.Losses = append(m.Losses, loss)
	}
	if m.Norms, err = unpackNorms(d.GetNorms()); err != nil {
		return nil, err
	}
	if m.Weights, err = unpackNorms(d.GetWeights()); err != nil {
		return nil, err
	}
	if m.Routers, err = unpackRouters(d.GetRouters()); err != nil {
		return nil, err
	}
	if m.Trace, err = UnpackActions(d.GetTrace(), scheduler.MaxActions); err != nil {
		return nil, err
	}
	for _, t := range m.Trace {
		if n := c.spec.Table.NumChunks; int(t.Action.Chunk) >= n {
			return nil, fmt.Errorf("%w: the times of %v, but there are %d chunks", ErrMessage, t.Action, n)
		}
	}
	return m, nil
}

func unpackNorms(all []*wire.Norm) (norms []stages.Norm, err error) {
	for _, n := range all {
		if n.GetParam() < 0 || n.GetParam() >= limitParams {
			return nil, fmt.Errorf("%w: the norm of parameter %d; the limit is %d", ErrMessage, n.GetParam(), limitParams)
		}
		norms = append(norms, stages.Norm{Param: int(n.GetParam()), Squared: n.GetSquared()})
	}
	return norms, nil
}

func unpackRouters(all []*wire.Router) (routers []stages.RouterStats, err error) {
	if len(all) > stages.MaxLayers {
		return nil, fmt.Errorf("%w: a report has %d routers; the limit is %d", ErrMessage, len(all), stages.MaxLayers)
	}
	for _, r := range all {
		if n := len(r.GetCounts()); n < 1 || n > stages.MaxExperts || !(r.GetRows() > 0) {
			return nil, fmt.Errorf("%w: the router of layer %d reports %d experts and %g tokens", ErrMessage, r.GetLayer(), n, r.GetRows())
		}
		routers = append(routers, stages.RouterStats{Layer: int(r.GetLayer()), Rows: r.GetRows(), AuxLoss: r.GetAuxLoss(),
			Entropy: r.GetEntropy(), ZLoss: r.GetZLoss(), Counts: r.GetCounts()})
	}
	return routers, nil
}

// limitParams limits the number of a model's parameters, each of which is a tensor.
const limitParams = 1 << 20

func unpackUpdate(u *wire.Update) stages.Update {
	return stages.Update{Count: int(u.GetCount()), LR: u.GetLr(), GradScale: u.GetGradScale()}
}

func unpackFailure(f *wire.Failed) error {
	if f.GetStack() != "" {
		return &Panic{Value: cut(f.GetError()), Stack: []byte(cut(f.GetStack()))}
	}
	return &RemoteError{Text: cut(f.GetError()), kind: failures[f.GetKind()]}
}

// cut makes a text fit into a message: short, and valid UTF-8.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), limitText)], "\uFFFD") }

// remoteRank checks the rank of a stage that reports from another process.
func (c *Codec) remoteRank(rank int32) (int, error) {
	if rank < 0 || int(rank) >= c.spec.ranks() || c.spec.host(int(rank)) == "" {
		return 0, fmt.Errorf("%w: rank %d does not exist or is not in another process", ErrMessage, rank)
	}
	return int(rank), nil
}

func (c *Codec) checkEdge(kind uint32, chunk int32) error {
	if kind > uint32(scheduler.BackwardEdge) || chunk < 0 || int(chunk) >= c.spec.Table.NumChunks {
		return fmt.Errorf("%w: edge %d of chunk %d does not exist: there are %d chunks", ErrMessage, kind, chunk, c.spec.Table.NumChunks)
	}
	return nil
}

// checkData checks that a phase has a microbatch.
func (c *Codec) checkData(p event.Phase, chunk, microbatch int32) error {
	t := c.spec.Table
	if p == event.Eval {
		t = c.spec.EvalTable
	}
	if t == nil || p != event.Train && p != event.Eval || chunk < 0 || int(chunk) >= t.NumChunks || microbatch < 0 ||
		int(microbatch) >= c.spec.microbatches(p) {
		return fmt.Errorf("%w: phase %v has no microbatch %d for chunk %d", ErrMessage, p, microbatch, chunk)
	}
	return nil
}

// Taken is a decoded message whose numbers are still to be read.
type Taken struct {
	Parts   [][]byte          // the memory into which to read them
	Pieces  *tensorops.Pieces // instead of Parts, if they go to a device that the host cannot address
	Message any               // to be sent after they are read
	Release func()            // to be called if they never arrive
}

// Take decodes a message with numbers, in parts of the given lengths, from the process at an
// address.
func (c *Codec) Take(w *wire.Message, lens []int, from string) (taken Taken, err error) {
	h, err := c.header(w)
	if err == nil {
		err = c.checkSender(w, from, true)
	}
	if err != nil {
		return taken, err
	}
	var o owner
	var parts [][]byte
	switch k := w.Kind.(type) {
	case *wire.Message_Transfer:
		o, parts, taken.Pieces, err = c.takeTransfer(h, k.Transfer, lens)
	case *wire.Message_Data:
		o, parts, err = c.takeData(h, k.Data, lens)
	case *wire.Message_TiedGradient:
		o, parts, err = c.takeTied(h, k.TiedGradient, lens)
	case *wire.Message_StageState:
		o, parts, err = c.takeState(h, k.StageState, lens)
	case *wire.Message_Weight:
		m := &Weight{Header: h, Request: k.Weight.GetRequest()}
		m.Tensor, parts, m.Err, err = c.takeAnswer(k.Weight, lens)
		o = m
	case *wire.Message_RankState:
		m := &RankState{Header: h, Request: k.RankState.GetRequest(), Rank: int(k.RankState.GetRank()),
			Shadow: int(k.RankState.GetShadow())}
		if parts = c.destination(k.RankState, lens); parts == nil {
			m.Tensor, parts, m.Err, err = c.takeAnswer(k.RankState, lens)
		} else {
			m.placed = true
		}
		o = m
	case *wire.Message_StepGradient:
		o, parts, err = c.takeGradient(h, k.StepGradient, lens)
	default:
		err = fmt.Errorf("%w: %T has no numbers", ErrMessage, w.Kind)
	}
	if err != nil {
		return Taken{}, err
	}
	taken.Parts, taken.Message, taken.Release = parts, o, o.release
	return taken, nil
}

func (c *Codec) takeTransfer(h Header, t *wire.Transfer, lens []int) (owner, [][]byte, *tensorops.Pieces, error) {
	extent, err := unpackExtent(t.GetExtent())
	if err != nil {
		return nil, nil, nil, err
	}
	m := &Transfer{Header: h, Kind: scheduler.EdgeKind(t.GetEdge()), To: t.GetTo(), Rank: t.GetRank(), Microbatch: t.GetMicrobatch(),
		Slot: t.GetSlot(), Part: t.GetPart(), Extent: extent}
	if t.GetTensor() == nil && len(lens) == 0 && c.spec.tensorSize(int(t.GetRank())) > 1 {
		return m, nil, nil, nil // it arrives within the group
	}
	var parts [][]byte
	var pieces *tensorops.Pieces
	m.Tensor, parts, pieces, err = c.takeInput(t, lens)
	return m, parts, pieces, err
}

// takeInput allocates the tensor of a Transfer: on the receiving device, if the device copies
// pieces and has room, otherwise in the host's memory until its turn.
func (c *Codec) takeInput(t *wire.Transfer, lens []int) (x tensorops.Tensor, parts [][]byte, pieces *tensorops.Pieces, err error) {
	if a := c.arrivals[t.GetRank()]; a != nil && len(lens) == 1 {
		if x, err = newTensor(a, t.GetTensor(), lens); err == nil {
			if pieces, ok := tensorops.Arriving(x); ok {
				return x, nil, pieces, nil
			}
			x.Release()
		} else if !errors.Is(err, tensorops.ErrOutOfMemory) {
			return x, nil, nil, err
		}
	}
	x, parts, err = c.takeTensor(c.host, t.GetTensor(), lens)
	return x, parts, nil, err
}

func (c *Codec) takeData(h Header, d *wire.Data, lens []int) (owner, [][]byte, error) {
	extent, err := unpackExtent(d.GetExtent())
	if err != nil {
		return nil, nil, err
	}
	n := int64(extent.Sequences) * int64(extent.Positions)
	if len(lens) != batchParts+len(d.GetFields()) || n > math.MaxInt32 {
		return nil, nil, fmt.Errorf("%w: tokens in %d parts, for %d positions", ErrMessage, len(lens), n)
	}
	for i, count := range []int64{d.GetTokens(), d.GetTargets(), d.GetStarts()} {
		if count != 0 && count != n || int64(lens[i]) != 4*count {
			return nil, nil, fmt.Errorf("%w: got %d tokens in %d bytes for %d positions", ErrMessage, count, lens[i], n)
		}
	}
	b := c.batches.get(int(d.GetTokens()), int(d.GetTargets()), int(d.GetStarts())) // not for n positions, of which none may have arrived
	b.Extent = extent
	parts := b.parts()
	for i, f := range d.GetFields() {
		a, err := newArray(f, lens[batchParts+i])
		if err != nil {
			b.Release()
			return nil, nil, err
		}
		b.Fields, parts = append(b.Fields, a), append(parts, a.Bytes())
	}
	return &Data{Header: h, Chunk: d.GetChunk(), Microbatch: d.GetMicrobatch(), Batch: b}, parts, nil
}

func (c *Codec) takeTied(h Header, t *wire.TiedGradient, lens []int) (owner, [][]byte, error) {
	if t.GetFrom() < 0 || int(t.GetFrom()) >= c.spec.ranks() || t.GetParam() < 0 || t.GetFirst() < 0 || t.GetFirst() > tensorops.MaxDim {
		return nil, nil, fmt.Errorf("%w: an unexpected gradient of parameter %d from rank %d", ErrMessage, t.GetParam(), t.GetFrom())
	}
	x, parts, err := c.takeTensor(c.host, t.GetTensor(), lens)
	return &TiedGradient{Header: h, From: t.GetFrom(), Grad: stages.TiedGrad{Param: int(t.GetParam()), Uses: unpackUses(t.GetUses()),
		First: int(t.GetFirst()), Grad: x}}, parts, err
}

func (c *Codec) takeState(h Header, s *wire.StageState, lens []int) (owner, [][]byte, error) {
	rank, err := c.remoteRank(s.GetRank())
	if err != nil {
		return nil, nil, err
	}
	if s.GetKept() {
		return c.takeKept(h, rank, s, lens)
	}
	if len(lens) != len(s.GetSaved()) {
		return nil, nil, fmt.Errorf("%w: the state of rank %d has %d parts for %d tensors", ErrMessage, rank, len(lens), len(s.GetSaved()))
	}
	m := &StageState{Header: h, Rank: rank, Copies: c.copies.NewArena(c.spec.stageName(rank) + ", checkpoint")}
	var parts [][]byte
	for i, v := range s.GetSaved() {
		dtype, err := savedType(v)
		if err != nil {
			m.release()
			return nil, nil, err
		}
		t, part, err := c.takeTensor(m.Copies, &wire.Tensor{Dtype: uint32(dtype), Dims: v.GetDims()}, lens[i:i+1])
		if err != nil {
			m.release()
			return nil, nil, err
		}
		s := stages.Saved{Name: cut(v.GetName()), Index: int(v.GetIndex()), Part: cut(v.GetPart()), Shape: t.Shape()}
		s.Hold(t)
		if err := c.takeSlice(&s, t.Len(), v.GetSlice()); err != nil {
			m.release()
			return nil, nil, err
		}
		m.Saved = append(m.Saved, s)
		parts = append(parts, part...)
	}
	return m, parts, nil
}

// takeSlice records which part of a whole tensor a saved tensor is. Memory for the whole is
// allocated before all parts arrive, so it may not exceed what the parts can fill.
func (c *Codec) takeSlice(v *stages.Saved, numbers int, s *wire.Slice) (err error) {
	if s == nil {
		return nil
	}
	sharers := c.spec.sharers()
	if sharers == 1 {
		return fmt.Errorf("%w: got a part of %s, but every rank has whole tensors", ErrMessage, v.Name)
	}
	whole, _, err := unpackDims(tensorops.Float32, s.GetWhole())
	if err != nil {
		return err
	}
	n := int64(1)
	for _, d := range whole {
		n *= int64(d)
	}
	most := 2 * int64(sharers) * int64(numbers)
	if s.GetLimit()-s.GetFirst() == int64(numbers) { // the last part of few numbers may have much less than the others
		most = max(most, 2*int64(sharers)*int64(sharers)*tensorops.StateBlock)
	}
	if n > most {
		return fmt.Errorf("%w: got %d numbers of %s as a part of %d", ErrMessage, numbers, v.Name, n)
	}
	v.Whole = whole
	v.Slice = stages.Slice{Dim: int(s.GetDim()), Sections: int(s.GetSections()), From: int(s.GetFrom()), To: int(s.GetTo()),
		First: int(s.GetFirst()), Limit: int(s.GetLimit())}
	return nil
}

// takeKept decodes the description of what a stage keeps; the numbers stay there.
func (c *Codec) takeKept(h Header, rank int, s *wire.StageState, lens []int) (owner, [][]byte, error) {
	if len(lens) > 0 || !c.spec.shares(rank) {
		return nil, nil, fmt.Errorf("%w: rank %d keeps its state, but sent %d parts", ErrMessage, rank, len(lens))
	}
	m := &StageState{Header: h, Rank: rank, Kept: true}
	for _, v := range s.GetSaved() {
		dtype, err := savedType(v)
		if err != nil {
			return nil, nil, err
		}
		shape, _, err := unpackDims(dtype, v.GetDims())
		if err != nil {
			return nil, nil, err
		}
		m.Saved = append(m.Saved, stages.Saved{Name: cut(v.GetName()), Index: int(v.GetIndex()), Part: cut(v.GetPart()), Shape: shape,
			DType: dtype})
	}
	return m, nil, nil
}

// savedType returns the type in which a checkpoint stores a tensor.
func savedType(v *wire.Saved) (tensorops.DType, error) {
	for _, t := range []tensorops.DType{tensorops.Float32, tensorops.BFloat16, tensorops.Uint8} {
		if v.GetDtype() == uint32(t) {
			return t, nil
		}
	}
	return 0, fmt.Errorf("%w: a tensor of a checkpoint has the unknown type %d", ErrMessage, v.GetDtype())
}

func unpackPlaces(w *wire.WriteState) (places []trainstate.Place, err error) {
	if len(w.GetFile()) != len(w.GetOffset()) {
		return nil, fmt.Errorf("%w: got %d files for %d places", ErrMessage, len(w.GetFile()), len(w.GetOffset()))
	}
	for i, n := range w.GetFile() {
		if int64(n) >= int64(len(w.GetFiles())) {
			return nil, fmt.Errorf("%w: file %d does not exist: there are %d files", ErrMessage, n, len(w.GetFiles()))
		}
		places = append(places, trainstate.Place{File: cut(w.GetFiles()[n]), Offset: w.GetOffset()[i]})
	}
	return places, nil
}

// takeAnswer decodes the answer to a request for a tensor: the tensor, or the error of the other process.
func (c *Codec) takeAnswer(w interface {
	GetError() string
	GetTensor() *wire.Tensor
}, lens []int) (t tensorops.Tensor, parts [][]byte, answer, err error) {
	if w.GetError() != "" {
		if len(lens) > 0 {
			return t, nil, nil, fmt.Errorf("%w: an error has %d parts", ErrMessage, len(lens))
		}
		return t, nil, &RemoteError{Text: cut(w.GetError())}, nil
	}
	t, parts, err = c.takeTensor(c.host, w.GetTensor(), lens)
	return t, parts, nil, err
}

// destination returns where the state of a rank is wanted by what builds a stage here; nil: by the actor of a shadow, or the numbers are
// others than expected.
func (c *Codec) destination(w *wire.RankState, lens []int) [][]byte {
	if w.GetShadow() == 0 && len(c.spec.Shadows) > 0 || w.GetError() != "" || len(lens) != 1 ||
		tensorops.DType(w.GetTensor().GetDtype()) != tensorops.Float32 {
		return nil
	}
	if dst := c.reader.place(w.GetRequest(), lens[0]); dst != nil {
		return [][]byte{dst}
	}
	return nil
}

// takeGradient decodes gradients for a shadow.
func (c *Codec) takeGradient(h Header, w *wire.StepGradient, lens []int) (owner, [][]byte, error) {
	n := len(w.GetTensors())
	if n != len(w.GetParams()) || n != len(lens) {
		return nil, nil, fmt.Errorf("%w: %d gradients for %d parameters in %d parts", ErrMessage, n, len(w.GetParams()), len(lens))
	}
	m := &StepGradient{Header: h, Rank: int(w.GetRank())}
	var parts [][]byte
	for i, t := range w.GetTensors() {
		x, part, err := c.takeTensor(c.host, t, lens[i:i+1])
		if err != nil {
			m.release()
			return nil, nil, err
		}
		m.Grads, parts = append(m.Grads, stages.Gradient{Param: int(w.GetParams()[i]), Grad: x}), append(parts, part...)
	}
	return m, parts, nil
}

// Uses are encoded as one bit for each place.

func packUses(u stages.Uses) (bits uint32) {
	for place, used := range u {
		if used {
			bits |= 1 << place
		}
	}
	return bits
}

func unpackUses(bits uint32) (u stages.Uses) {
	for place := range u {
		u[place] = bits>>place&1 != 0
	}
	return u
}

func unpackExtent(e *wire.Extent) (Extent, error) {
	for _, n := range []int64{e.GetFirstSequence(), e.GetSequences(), e.GetPositions(), e.GetExtra()} {
		if n < 0 || n > math.MaxInt32 || e.GetExtra() > e.GetPositions() {
			return Extent{}, fmt.Errorf("%w: an impossible microbatch of %d sequences starting at %d, of %d positions, %d of them extra",
				ErrMessage, e.GetSequences(), e.GetFirstSequence(), e.GetPositions(), e.GetExtra())
		}
	}
	return Extent{int(e.GetFirstSequence()), int(e.GetSequences()), int(e.GetPositions()), int(e.GetExtra())}, nil
}

// takeTensor allocates a tensor for numbers in parts of the given lengths.
func (c *Codec) takeTensor(a tensorops.Arena, w *wire.Tensor, lens []int) (tensorops.Tensor, [][]byte, error) {
	t, err := newTensor(a, w, lens)
	if err != nil {
		return t, nil, err
	}
	rest := tensorops.Bytes(t)
	parts := make([][]byte, 0, len(lens))
	for _, n := range lens {
		parts, rest = append(parts, rest[:n:n]), rest[n:]
	}
	return t, parts, nil
}

// newTensor allocates a tensor that another process describes, if its size matches the bytes to
// come.
func newTensor(a tensorops.Arena, w *wire.Tensor, lens []int) (tensorops.Tensor, error) {
	var none tensorops.Tensor
	if w == nil || !known(w.GetDtype()) || len(w.GetDims()) > tensorops.MaxRank {
		return none, fmt.Errorf("%w: an impossible tensor of type %d with %d dimensions", ErrMessage, w.GetDtype(), len(w.GetDims()))
	}
	dtype, total := tensorops.DType(w.GetDtype()), 0
	for _, n := range lens {
		total += n
	}
	shape, want, err := unpackDims(dtype, w.GetDims())
	if err != nil {
		return none, err
	}
	if want != int64(total) {
		return none, fmt.Errorf("%w: a tensor of %v%d has %d bytes, but %d were announced", ErrMessage, dtype, shape, want, total)
	}
	return tensorops.NewTensor(a, dtype, shape...)
}

// known reports whether a number is the code of an element type.
func known(dtype uint32) bool { return dtype <= math.MaxUint8 && tensorops.DType(dtype).Known() }

// newArray allocates an array that another process describes, if its size matches the bytes to
// come.
func newArray(w *wire.Tensor, size int) (a tensorops.Array, err error) {
	if t := w.GetDtype(); !known(t) || tensorops.DType(t) == tensorops.BFloat16 { // no field has this type
		return a, fmt.Errorf("%w: a field has the unknown type %d", ErrMessage, w.GetDtype())
	}
	dtype := tensorops.DType(w.GetDtype())
	shape, want, err := unpackDims(dtype, w.GetDims())
	if err == nil && want != int64(size) {
		err = fmt.Errorf("%w: a field of %v%d has %d bytes, but %d were announced", ErrMessage, dtype, shape, want, size)
	}
	if err != nil {
		return a, err
	}
	return tensorops.NewArray(dtype, shape), nil
}

// unpackDims returns a tensor's shape and size in bytes.
func unpackDims(dtype tensorops.DType, dims []int64) (shape []int, bytes int64, err error) {
	bytes, shape = int64(dtype.Size()), make([]int, 0, tensorops.MaxRank)
	for i, d := range dims {
		if i >= tensorops.MaxRank || d < 0 || d > tensorops.MaxDim || d > 0 && bytes > math.MaxInt64/d {
			return nil, 0, fmt.Errorf("%w: a tensor has the impossible dimensions %d", ErrMessage, dims[:min(len(dims), tensorops.MaxRank+1)])
		}
		bytes *= d
		shape = append(shape, int(d))
	}
	return shape, bytes, nil
}
