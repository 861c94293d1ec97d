package cuda

import (
	"errors"

	"github.com/troupe-ml/troupe/tensorops"
)

// reduce takes a collective one part further. A group of one is told of the operation as
// it is where that happens in place, and any group of a barrier. Else the group gets tensors in
// page-locked host memory, which it can read and write: the device's source is fetched before, and its
// destination uploaded after. The batch that fetches starts the collective when it completes.
func (s *stream) reduce(f *launchBatch, op *tensorops.Op) (goOn bool, err error) {
	r, a := &s.run, op.Collective()
	// A member's part may begin where the whole does.
	inPlace, from, to := a.Dst.Same(a.Src) && a.Dst.SameShape(a.Src), a.Src, a.Dst
	if a.What == tensorops.Barrier || a.Group.Size() <= 1 && inPlace && a.What != tensorops.AllToAllV {
		f.collective, f.cause = op, op
		r.op++
		return false, nil
	}
	if a.What == tensorops.AllToAllV {
		there, err := s.readTable(f, a.Table)
		if !there || err != nil {
			return false, err
		}
		if from, to, err = exchanged(a, tensorops.Elements[int32](r.table)); err != nil {
			return false, err
		}
	}
	if !r.host.Valid() {
		if r.host, err = s.dev.hostTensor(from); err != nil {
			return false, err
		}
	}
	if !r.result.Valid() {
		if r.result = r.host; !inPlace {
			if r.result, err = s.dev.hostTensor(to); err != nil {
				return false, err
			}
		}
	}
	if !r.summed {
		whole, err := s.fetch(f, tensorops.Bytes(r.host), from)
		if !whole || err != nil {
			return false, err
		}
		onHost, args := *op, a
		args.Dst, args.Src, args.Table = r.result, r.host, r.table
		args.Put(&onHost)
		f.collective, f.cause, r.summed = &onHost, op, true
		return false, nil
	}
	whole, err := s.upload(f, to, tensorops.Bytes(r.result))
	if !whole || err != nil {
		return false, err
	}
	s.tables.crossed(a, r.result, r.table)
	f.keep(r.host)
	f.keep(r.table)
	if !r.result.Same(r.host) {
		f.keep(r.result)
	}
	r.host, r.result, r.table, r.read, r.summed = tensorops.Tensor{}, tensorops.Tensor{}, tensorops.Tensor{}, false, false
	r.op++
	return true, nil
}

// readTable brings the table of an exchange of rows to the host. It is false until the batch that fetches it is complete: none is
// needed if the host has seen the table before.
func (s *stream) readTable(f *launchBatch, table tensorops.Tensor) (there bool, err error) {
	r := &s.run
	if r.read {
		return true, nil
	}
	if !r.table.Valid() {
		if r.table, err = s.dev.hostTensor(table); err != nil {
			return false, err
		}
		if numbers, ok := s.tables.numbers(table); ok {
			copy(tensorops.Elements[int32](r.table), numbers)
			r.read = true
			return true, nil
		}
	}
	r.read, err = s.fetch(f, tensorops.Bytes(r.table), table)
	return false, err
}

// exchanged is what an exchange of rows by a table reads and writes of its tensors.
func exchanged(a tensorops.CollectiveArgs, table []int32) (from, to tensorops.Tensor, err error) {
	read, written, err := a.ExchangedRows(table)
	if err != nil {
		return from, to, err
	}
	return a.Src.RowRange(0, read), a.Dst.RowRange(0, written), nil
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
