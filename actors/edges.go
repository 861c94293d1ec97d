package actors

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// edges holds a rank's edges: from which ranks the inputs of its actions come and to which its
// outputs go, in which memory, and its credits for outputs.
type edges struct {
	memory  *edgeMemory
	own     []int32           // the rank's chunks
	chunks  []*[2]side        // by chunk and scheduler.EdgeKind; nil: a chunk of another rank
	credits scheduler.Credits // by chunk; of the rank's
}

// side holds a chunk's edges of one kind, from the view of a rank that has the chunk.
type side struct {
	ins, outs []stages.Port // of each tensor that an action takes and makes
	from, to  []neighbour   // each chunk at the other end once
	// How each of those tensors gets to this rank, and from it.
	takes, sends []exchange
}

// neighbour is the chunk at the other end of an edge.
type neighbour struct {
	chunk int32
	skip  int32   // 0: the neighboring chunk; otherwise 1 plus the edge's index in the table's skips
	ranks []int32 // ranks that have the chunk and exchange tensors with this rank
}

// exchange describes how a tensor gets from the ranks of one stage to those of another, from the
// view of one of them.
type exchange struct {
	edge   grid.Edge
	place  int          // this rank's index among those of its stage
	peers  []int32      // the ranks of the other stage
	pieces []grid.Piece // pieces that this rank sends or takes
	takes  bool
}

// outgoing is a piece of an output that is to be sent.
type outgoing struct {
	slot   int
	rank   int32
	part   int32
	tensor tensorops.Tensor // invalid: the receiver gets the numbers within its group
}

// none is the side of an action without edges.
var none side

// of returns the edges of an action, and their kind.
func (e *edges) of(a scheduler.Action) (*side, scheduler.EdgeKind) {
	switch a.Type {
	case scheduler.F:
		return &e.chunks[a.Chunk][scheduler.ForwardEdge], scheduler.ForwardEdge
	case scheduler.I, scheduler.B:
		return &e.chunks[a.Chunk][scheduler.BackwardEdge], scheduler.BackwardEdge
	}
	return &none, scheduler.ForwardEdge
}

// take records the arrival of a pass's inputs, and returns them in the form in which the stage
// takes them.
func (e *edges) take(l *tensorops.List, stage Compute, p *pass, mb *stages.Microbatch) (in []tensorops.Tensor) {
	for slot, messages := range p.in {
		var pieces []tensorops.Tensor
		for _, m := range messages {
			if m.Tensor.Valid() {
				pieces = append(pieces, e.memory.receive(l, m.Tensor))
			}
		}
		in = append(in, stages.Arrive(l, stage, p.Action, mb, &p.takes[slot].edge, pieces...))
	}
	return in
}

// give records the departure of a pass's outputs, each in its pieces (pass.out). It owns out.
func (e *edges) give(l *tensorops.List, p *pass, out []tensorops.Tensor) {
	if len(out) != len(p.outs) && l.Err() == nil {
		l.Fail(fmt.Errorf("%w: %v made %d tensors, but %d are to be sent", stages.ErrInput, p.Action, len(out), len(p.outs)))
	}
	for slot, t := range out {
		if slot >= len(p.outs) { // after an error
			p.out = append(p.out, outgoing{tensor: t})
			continue
		}
		e.divide(l, p, slot, t)
	}
}

// divide records the departure of one output.
func (e *edges) divide(l *tensorops.List, p *pass, slot int, t tensorops.Tensor) {
	x := &p.sends[slot]
	first, limit := x.edge.Has(x.place)
	last := -1 // the last piece that is all of t, and takes ownership of it
	for i, piece := range x.pieces {
		if piece.First == first && piece.Limit == limit {
			last = i
		}
	}
	for i, piece := range x.pieces {
		rank, sent := x.peer(piece), tensorops.Tensor{}
		switch {
		case piece.Empty():
		case i == last:
			sent = t
		case piece.First == first && piece.Limit == limit:
			sent = l.Alloc(t.DType(), t.Shape()...)
			l.Copy(sent, t)
		default:
			sent = stages.CutPositions(l, t, piece.First-first, piece.Limit-first, limit-first)
		}
		p.out = append(p.out, outgoing{slot: slot, rank: rank, part: int32(piece.Part),
			tensor: e.memory.send(l, sent, int(rank))})
	}
	if last < 0 && t.Valid() {
		l.Free(t)
	}
}

// prepare takes the edges of a rank's chunks from a run's routes.
func (e *edges) prepare(s *Spec, t *scheduler.Table, rank int) {
	e.credits.Forward, e.credits.Backward = make([]int, t.NumChunks), make([]int, t.NumChunks)
	e.chunks = make([]*[2]side, t.NumChunks)
	for chunk := range t.NumChunks {
		if t.RankOf(chunk) == s.place(rank)[grid.Pipeline] {
			e.own, e.chunks[chunk] = append(e.own, int32(chunk)), s.edgesOf(t, rank, chunk)
		}
	}
}

// grant gives a rank the credits of an order.
func (e *edges) grant(c *scheduler.Credits) {
	e.credits.SkipForward = append(e.credits.SkipForward[:0], c.SkipForward...)
	e.credits.SkipBackward = append(e.credits.SkipBackward[:0], c.SkipBackward...)
	for _, chunk := range e.own { // not for all chunks, of which there may be many
		e.credits.Forward[chunk], e.credits.Backward[chunk] = c.Forward[chunk], c.Backward[chunk]
		for kind := range e.chunks[chunk] {
			for _, n := range e.chunks[chunk][kind].to { // each of those ranks returns a credit
				*e.credit(scheduler.EdgeKind(kind), chunk, n.skip) *= len(n.ranks)
			}
		}
	}
}

// credit returns the remaining credits of an edge that starts at a chunk; skip as in neighbour.
func (e *edges) credit(kind scheduler.EdgeKind, chunk, skip int32) *int {
	c := &e.credits
	switch {
	case skip == 0 && kind == scheduler.ForwardEdge:
		return &c.Forward[chunk]
	case skip == 0:
		return &c.Backward[chunk]
	case kind == scheduler.ForwardEdge:
		return &c.SkipForward[skip-1]
	}
	return &c.SkipBackward[skip-1]
}

// lacksCredit returns the first edge without a credit that a pass's output needs. Each receiving
// rank returns one.
func (e *edges) lacksCredit(p *pass) (neighbour, bool) {
	for _, n := range p.to {
		if *e.credit(p.kind, p.Chunk, n.skip) < len(n.ranks) {
			return n, true
		}
	}
	return neighbour{}, false
}

// spend takes the credits that a pass's output needs.
func (e *edges) spend(p *pass) {
	for _, n := range p.to {
		*e.credit(p.kind, p.Chunk, n.skip) -= len(n.ranks)
	}
}

// edgesOf returns a chunk's edges by kind, from the view of a rank that has the chunk.
func (s *Spec) edgesOf(t *scheduler.Table, rank, chunk int) *[2]side {
	r := s.route(chunk)
	both := &[2]side{{ins: r.Ins, outs: r.Outs}, {ins: r.GradOuts, outs: r.GradIns}}
	for kind := range both {
		of := &both[kind]
		of.takes, of.from = s.exchanges(t, rank, chunk, of.ins, true)
		of.sends, of.to = s.exchanges(t, rank, chunk, of.outs, false)
	}
	return both
}

// exchanges returns the exchanges with the chunks of some ports, from which the rank takes or to
// which it sends.
func (s *Spec) exchanges(t *scheduler.Table, rank, chunk int, ports []stages.Port, takes bool) (each []exchange, all []neighbour) {
	for _, p := range ports {
		x := s.exchange(rank, t.RankOf(p.Chunk), takes)
		each = append(each, x)
		n := neighbour{chunk: int32(p.Chunk), ranks: x.ranks()}
		if s := (scheduler.Skip{From: min(chunk, p.Chunk), To: max(chunk, p.Chunk)}); s.To-s.From > 1 {
			n.skip = int32(slices.Index(t.Skips, s)) + 1
		}
		if !slices.ContainsFunc(all, func(o neighbour) bool { return o.chunk == n.chunk }) {
			all = append(all, n)
		}
	}
	return each, all
}

// exchange describes how a rank takes the output of a stage, or sends its own output to it.
func (s *Spec) exchange(rank, stage int, takes bool) exchange {
	x := exchange{place: s.place(rank)[grid.Tensor], peers: s.group(rank, stage), takes: takes}
	own, others := s.tensorSize(rank), len(x.peers)
	if takes {
		x.edge = grid.NewEdge(others, own, s.Slices, s.Way)
		x.pieces = x.edge.Takes(x.place)
	} else {
		x.edge = grid.NewEdge(own, others, s.Slices, s.Way)
		x.pieces = x.edge.Sends(x.place)
	}
	return x
}

// peer returns the rank that a piece goes to, or comes from.
func (x *exchange) peer(p grid.Piece) int32 {
	if x.takes {
		return x.peers[p.Sender]
	}
	return x.peers[p.Receiver]
}

// ranks returns the ranks that this rank sends to, or takes from.
func (x *exchange) ranks() (all []int32) {
	for _, p := range x.pieces {
		if r := x.peer(p); !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

// Tensors move from one device to another in memory that the host can address. A stage whose memory
// the host cannot address fetches a leaving tensor into one of the run's own, page-locked if its
// device has such memory, and uploads an arriving one. A stage whose memory the host can address
// sends and takes such tensors directly.
//
// A device that copies from the other device's memory (tensorops.Peer) does that instead: the
// sending stage copies the tensor within its device's memory, and frees the copy after the other
// stage has copied it in turn. Because of the copy, the allocations of a step's lists depend only
// on the lists, not on the moment at which another stage is done with a tensor. So addresses recur
// (see tensorops.Pool).
//
// On one device a tensor is handed over, wherever it is. To and from another process the codec
// copies in pieces, if the device supports it (tensorops.Pieces).

// edgeMemory is a rank's memory for these transfers.
type edgeMemory struct {
	rank        int
	spec        *Spec
	own         tensorops.Arena // arena of the rank's stream
	host        tensorops.Arena // the run's arena, for tensors between devices
	locked      tensorops.Arena // page-locked memory for the same; nil: the device has none
	device      tensorops.Arena // device memory from which another device copies; nil: none does
	addressable bool            // the host can address the memory of this stage's device
}

// newEdgeMemory makes a rank's edgeMemory; its stream must exist.
func (l *local) newEdgeMemory(rank int) *edgeMemory {
	h, name := &edgeMemory{rank: rank, spec: &l.spec, own: l.streams[rank].Arena(), host: l.host}, l.spec.stageName(rank)
	for other := range l.spec.ranks() {
		if l.spec.host(other) != "" || l.spec.share(rank, other) {
			continue
		}
		if d, ok := l.spec.device(rank).(tensorops.PageLocker); ok && h.locked == nil {
			h.locked = d.NewHostArena(name + " (transfers)")
		}
		if h.device == nil && l.spec.copiesFrom(other, rank) {
			h.device, _ = tensorops.Beside(h.own, name+" (outgoing)")
		}
	}
	return h
}

// close frees the memory.
func (h *edgeMemory) close() {
	for _, a := range []tensorops.Arena{h.locked, h.device} {
		if a != nil {
			a.Close()
		}
	}
}

// take allocates a tensor for a transfer through the host.
func (h *edgeMemory) take(like tensorops.Tensor) (tensorops.Tensor, error) {
	if h.locked != nil {
		out, err := tensorops.NewTensor(h.locked, like.DType(), like.Shape()...)
		if !errors.Is(err, tensorops.ErrOutOfMemory) {
			return out, err
		}
	}
	return tensorops.NewTensor(h.host, like.DType(), like.Shape()...)
}

// addressable reports whether the host can address the memory of an arena.
func addressable(a tensorops.Arena) (bool, error) {
	b, err := a.Take(1)
	if err != nil {
		return false, err
	}
	defer a.Put(b)
	return b.Mem != nil, nil
}

// send records the departure of a tensor of this rank for another rank, and returns the tensor to
// send: it is complete when the list is.
func (h *edgeMemory) send(l *tensorops.List, t tensorops.Tensor, rank int) tensorops.Tensor {
	if !t.Valid() || h.addressable || h.spec.share(h.rank, rank) {
		return t
	}
	if h.spec.host(rank) != "" {
		if _, ok := tensorops.Leaving(t); ok {
			return t
		}
	}
	if h.device != nil && h.spec.copiesFrom(rank, h.rank) {
		out, err := tensorops.NewTensor(h.device, t.DType(), t.Shape()...)
		if err == nil {
			l.PeerCopy(out, t)
			l.Free(t)
			return out
		}
		if !errors.Is(err, tensorops.ErrOutOfMemory) { // the host may have memory left
			l.Fail(fmt.Errorf("transfer to rank %d: %w", rank, err))
			return t
		}
	}
	out, err := h.take(t)
	if err != nil {
		l.Fail(fmt.Errorf("transfer to rank %d: %w", rank, err))
		return t
	}
	l.Fetch(tensorops.Bytes(out), t)
	l.Free(t)
	return out
}

// receive records the arrival of a tensor from another rank, and returns the tensor that this
// rank's operations take.
func (h *edgeMemory) receive(l *tensorops.List, t tensorops.Tensor) tensorops.Tensor {
	if !t.Valid() || h.addressable {
		return t
	}
	peer := t.Buffer().Mem == nil
	if peer && !tensorops.Elsewhere(h.own, t) {
		return t
	}
	if !t.Contiguous() {
		l.Fail(fmt.Errorf("%w: %v comes from another device, so it must be contiguous", tensorops.ErrShape, t))
	}
	in := l.Alloc(t.DType(), t.Shape()...)
	switch {
	case !in.Valid():
	case peer:
		l.PeerCopy(in, t)
	default:
		l.Upload(in, tensorops.Bytes(t))
	}
	l.Free(t)
	return in
}
