package cuda

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// reduce takes a collective one part further. A group of one is told of the operation as
// it is where that happens in place, and any group of a barrier. Else the group gets tensors in
// page-locked host memory, which it can read and write: the device's source is fetched before, and its
// destination uploaded after. The batch that fetches starts the collective when it completes.
func (s *stream) reduce(f *launchBatch, op *tensorops.Op) (goOn bool, err error) {
	r, a := &s.run, op.Collective()
	if a.What == tensorops.AllToAllV { // its table would have to be fetched, too
		return false, fmt.Errorf("%v: %w", a.What, tensorops.ErrUnsupported)
	}
	// A member's part may begin where the whole does.
	inPlace := a.Dst.Same(a.Src) && a.Dst.SameShape(a.Src)
	if a.What == tensorops.Barrier || a.Group.Size() <= 1 && inPlace {
		f.collective, f.cause = op, op
		r.op++
		return false, nil
	}
	if !r.host.Valid() {
		if r.host, err = s.dev.hostTensor(a.Src); err != nil {
			return false, err
		}
	}
	if !r.result.Valid() {
		if r.result = r.host; !inPlace {
			if r.result, err = s.dev.hostTensor(a.Dst); err != nil {
				return false, err
			}
		}
	}
	if !r.summed {
		whole, err := s.fetch(f, tensorops.Bytes(r.host), a.Src)
		if !whole || err != nil {
			return false, err
		}
		onHost, args := *op, a
		args.Dst, args.Src = r.result, r.host
		args.Put(&onHost)
		f.collective, f.cause, r.summed = &onHost, op, true
		return false, nil
	}
	whole, err := s.upload(f, a.Dst, tensorops.Bytes(r.result))
	if !whole || err != nil {
		return false, err
	}
	f.keep(r.host)
	if !r.result.Same(r.host) {
		f.keep(r.result)
	}
	r.host, r.result, r.summed = tensorops.Tensor{}, tensorops.Tensor{}, false
	r.op++
	return true, nil
}

// hostTensor makes a tensor like another in memory of the host's, page-locked if there is such.
// It runs on the owner's thread.
func (d *Device) hostTensor(like tensorops.Tensor) (tensorops.Tensor, error) {
	t, err := tensorops.NewTensor(d.host, like.DType(), like.Shape()...)
	if errors.Is(err, tensorops.ErrOutOfMemory) {
		return tensorops.NewTensor(d.pageable, like.DType(), like.Shape()...)
	}
	return t, err
}

// collect starts a collective and waits for its end.
func collect(op *tensorops.Op) (err error) {
	defer func() {
		if v := recover(); v != nil { // in the group's code, not the device's
			err = panicError(v)
		}
	}()
	result := make(chan error, 1)
	op.Group.Start(op, func(err error) { result <- err })
	return <-result
}
