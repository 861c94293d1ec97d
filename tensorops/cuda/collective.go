package cuda

import (
	"github.com/troupe-ml/troupe/tensorops"
)

// reduce takes a collective one part further. A group of one is told of the operation as
// it is where that happens in place, and any group of a barrier. Else the group gets tensors in
// host memory, which it can read and write: the device's source is fetched before, and its
// destination uploaded after. The batch that fetches starts the collective when it completes.
func (s *stream) reduce(f *launchBatch, op *tensorops.Op) (goOn bool, err error) {
	r, a := &s.run, op.Collective()
	inPlace := a.Dst.Same(a.Src)
	if a.What == tensorops.Barrier || a.Group.Size() <= 1 && inPlace {
		f.collective, f.cause = op, op
		r.op++
		return false, nil
	}
	if !r.host.Valid() {
		if r.host, err = tensorops.NewTensor(s.dev.host, a.Src.DType(), a.Src.Shape()...); err != nil {
			return false, err
		}
	}
	if !r.result.Valid() {
		if r.result = r.host; !inPlace {
			if r.result, err = tensorops.NewTensor(s.dev.host, a.Dst.DType(), a.Dst.Shape()...); err != nil {
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
	// The upload has passed through staging: nothing reads the host's copies any more.
	r.release()
	r.summed = false
	r.op++
	return true, nil
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
