package actors

import (
	"fmt"
	"reflect"

	"github.com/troupe-ml/troupe/tensorops"
)

// What crosses from one device to another crosses in memory that the host can address. A
// stage whose memory it cannot address fetches what leaves for another device into a tensor of
// the run's own, and uploads what comes from one; a stage whose memory it can address sends and
// takes such tensors as they are. On one device a tensor is handed over, wherever it lies. To
// and from another process the codec copies in pieces, if the device does (tensorops.Pieces).

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

// hostTransfer is what a stage needs for it.
type hostTransfer struct {
	host        tensorops.Arena // the run's, for what crosses
	addressable bool            // by the host: the memory of this stage's device
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
	out, err := tensorops.NewTensor(a.hostTransfer.host, t.DType(), t.Shape()...)
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
	if !t.Valid() || a.hostTransfer.addressable || t.Buffer().Mem == nil {
		return t
	}
	if !t.Contiguous() {
		l.Fail(fmt.Errorf("%w: %v comes from another device: it must be contiguous", tensorops.ErrShape, t))
	}
	in := l.Alloc(t.DType(), t.Shape()...)
	if in.Valid() {
		l.Upload(in, tensorops.Bytes(t))
	}
	l.Free(t)
	return in
}
