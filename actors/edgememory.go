package actors

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// What crosses from one device to another crosses in memory that the host can address. A
// stage whose memory it cannot address fetches what leaves for another device into a tensor of
// the run's own, page-locked if its device has such memory, and uploads what comes from one; a
// stage whose memory it can address sends and takes such tensors as they are. A device that
// copies from the other one's memory (tensorops.Peer) does that instead: a stage sends a copy in
// memory of its device's, which goes back when the other stage has copied it in its turn. The
// copy is there for what a step's lists allocate to follow the list alone, and not the moment at
// which another stage is done with a tensor: so addresses recur (see tensorops.Pool).
// On one device a tensor is handed over, wherever it lies. To and from another process the
// codec copies in pieces, if the device does (tensorops.Pieces).

// edgeMemory is what a rank needs for it.
type edgeMemory struct {
	rank        int
	spec        *Spec
	own         tensorops.Arena // of the rank's stream
	host        tensorops.Arena // the run's, for what crosses
	locked      tensorops.Arena // of page-locked memory, for the same; nil: the device has none
	device      tensorops.Arena // of the device's memory, for what another one copies from there; nil: none does
	addressable bool            // by the host: the memory of this stage's device
}

// newEdgeMemory makes a rank's, whose stream there is.
func (l *local) newEdgeMemory(rank int) *edgeMemory {
	h, name := &edgeMemory{rank: rank, spec: &l.spec, own: l.streams[rank].Arena(), host: l.host}, l.spec.stageName(rank)
	for other := range l.spec.ranks() {
		if l.spec.host(other) != "" || l.spec.share(rank, other) {
			continue
		}
		if d, ok := l.spec.device(rank).(tensorops.PageLocker); ok && h.locked == nil {
			h.locked = d.NewHostArena(name + " (what crosses)")
		}
		if h.device == nil && l.spec.copiesFrom(other, rank) {
			h.device, _ = tensorops.Beside(h.own, name+" (what leaves)")
		}
	}
	return h
}

// close gives its memory back.
func (h *edgeMemory) close() {
	for _, a := range []tensorops.Arena{h.locked, h.device} {
		if a != nil {
			a.Close()
		}
	}
}

// take makes a tensor for what crosses by way of the host.
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

// send records that a tensor of the rank's leaves for another rank, and returns the one that
// goes: on completion it is whole.
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
		if !errors.Is(err, tensorops.ErrOutOfMemory) { // the host may have some
			l.Fail(fmt.Errorf("what leaves for rank %d: %w", rank, err))
			return t
		}
	}
	out, err := h.take(t)
	if err != nil {
		l.Fail(fmt.Errorf("what leaves for rank %d: %w", rank, err))
		return t
	}
	l.Fetch(tensorops.Bytes(out), t)
	l.Free(t)
	return out
}

// receive records that a tensor from another rank comes in, and returns the one that this
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
		l.Fail(fmt.Errorf("%w: %v comes from another device: it must be contiguous", tensorops.ErrShape, t))
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
