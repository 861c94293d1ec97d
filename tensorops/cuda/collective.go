package cuda

import "github.com/troupe-ml/troupe/tensorops"

// reduce takes a collective one part further. A group of one is told of the operation as
// it is. A larger one gets a tensor in host memory, where it can read and write it: the
// device's is fetched before and uploaded after. The batch that fetches it starts the
// collective when it completes.
func (s *stream) reduce(f *launchBatch, op *tensorops.Op) (goOn bool, err error) {
	r, a := &s.run, op.AllReduce()
	if a.Group.Size() <= 1 {
		f.collective, f.cause = op, op
		r.op++
		return false, nil
	}
	if !r.host.Valid() {
		if r.host, err = tensorops.NewTensor(s.dev.host, a.T.DType(), a.T.Shape()...); err != nil {
			return false, err
		}
	}
	host := tensorops.Bytes(r.host)
	if !r.summed {
		whole, err := s.fetch(f, host, a.T)
		if !whole || err != nil {
			return false, err
		}
		onHost := *op
		tensorops.AllReduceArgs{T: r.host, Group: a.Group}.Put(&onHost)
		f.collective, f.cause, r.summed = &onHost, op, true
		return false, nil
	}
	whole, err := s.upload(f, a.T, host)
	if !whole || err != nil {
		return false, err
	}
	// The upload has passed through staging: nothing reads the host's copy any more.
	r.host.Release()
	r.host, r.summed = tensorops.Tensor{}, false
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
