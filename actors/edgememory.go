package actors

import (
	"errors"
	"fmt"
	"reflect"

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

// device is the one that a rank computes on.
func (s *Spec) device(rank int) tensorops.Device {
	if len(s.Devices) > 0 {
		return s.Devices[rank]
	}
	return s.Device
}

// checkDevices makes sure that every rank has a device.
func (s *Spec) checkDevices() error {
	if n := len(s.Devices); n > 0 && n != s.ranks() {
		return fmt.Errorf("%w: %d devices for %d ranks: give one for each, or a single one for all", ErrSpec, n, s.ranks())
	}
	for r := range s.ranks() {
		if s.host(r) != "" {
			continue
		}
		d := s.device(r)
		if d == nil {
			return fmt.Errorf("%w: rank %d has no device", ErrSpec, r)
		}
		if len(s.Devices) > 0 && !reflect.ValueOf(d).Comparable() {
			return fmt.Errorf("%w: the device of rank %d, a %T, cannot be told from others: give a pointer to it", ErrSpec, r, d)
		}
	}
	return nil
}

// share reports whether two ranks are on the same device.
func (s *Spec) share(a, b int) bool {
	return s.host(a) == s.host(b) && (len(s.Devices) == 0 || s.Devices[a] == s.Devices[b])
}

// copiesFrom reports whether a rank's device copies from another's memory, both in this process.
func (s *Spec) copiesFrom(to, from int) bool {
	if s.host(to) != "" || s.host(from) != "" {
		return false
	}
	p, ok := s.device(to).(tensorops.Peer)
	return ok && p.CopiesFrom(s.device(from))
}

// hostTransfer is what a stage needs for it.
type hostTransfer struct {
	host        tensorops.Arena // the run's, for what crosses
	locked      tensorops.Arena // of page-locked memory, for the same; nil: the device has none
	device      tensorops.Arena // of the device's memory, for what another one copies from there; nil: none does
	addressable bool            // by the host: the memory of this stage's device
}

// newHostTransfer makes a rank's, whose stream there is.
func (l *local) newHostTransfer(rank int) hostTransfer {
	h, name := hostTransfer{host: l.host}, l.spec.stageName(rank)
	for other := range l.spec.ranks() {
		if l.spec.host(other) != "" || l.spec.share(rank, other) {
			continue
		}
		if d, ok := l.spec.device(rank).(tensorops.PageLocker); ok && h.locked == nil {
			h.locked = d.NewHostArena(name + " (what crosses)")
		}
		if h.device == nil && l.spec.copiesFrom(other, rank) {
			h.device, _ = tensorops.Beside(l.streams[rank].Arena(), name+" (what leaves)")
		}
	}
	return h
}

// close gives its memory back.
func (h hostTransfer) close() {
	for _, a := range []tensorops.Arena{h.locked, h.device} {
		if a != nil {
			a.Close()
		}
	}
}

// take makes a tensor for what crosses by way of the host.
func (h hostTransfer) take(like tensorops.Tensor) (tensorops.Tensor, error) {
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

// stageOut records that a tensor of this stage's leaves for a rank, and returns the one that
// goes: on completion it is whole.
func (a *stageActor) stageOut(l *tensorops.List, t tensorops.Tensor, rank int) tensorops.Tensor {
	if !t.Valid() || a.hostTransfer.addressable || a.spec.share(a.rank, rank) {
		return t
	}
	if a.spec.host(rank) != "" {
		if _, ok := tensorops.Leaving(t); ok {
			return t
		}
	}
	if a.hostTransfer.device != nil && a.spec.copiesFrom(rank, a.rank) {
		out, err := tensorops.NewTensor(a.hostTransfer.device, t.DType(), t.Shape()...)
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
	out, err := a.hostTransfer.take(t)
	if err != nil {
		l.Fail(fmt.Errorf("what leaves for rank %d: %w", rank, err))
		return t
	}
	l.Fetch(tensorops.Bytes(out), t)
	l.Free(t)
	return out
}

// stageIn records that a tensor from another rank comes in, and returns the one that this
// stage's operations take.
func (a *stageActor) stageIn(l *tensorops.List, t tensorops.Tensor) tensorops.Tensor {
	if !t.Valid() || a.hostTransfer.addressable {
		return t
	}
	peer := t.Buffer().Mem == nil
	if peer && !tensorops.Elsewhere(a.stream.Arena(), t) {
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
