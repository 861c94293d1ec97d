package p2p

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// sendable refuses tensors that can't be sent.
func (p *Port) sendable(ts []tensorops.Tensor) error {
	if n := len(ts); n == 0 || n > LimitTensors {
		return fmt.Errorf("%w: %d tensors to send; want 1 to %d in a message", tensorops.ErrShape, n, LimitTensors)
	}
	for i, t := range ts {
		switch {
		case !t.Valid():
			return fmt.Errorf("%w: tensor %d of %d is the zero Tensor", tensorops.ErrShape, i+1, len(ts))
		case p.reads(t) && t.Buffer().Mem == nil && t.Len() > 0:
			return errDevice(i, ts)
		}
	}
	return nil
}

func errDevice(i int, ts []tensorops.Tensor) error {
	return fmt.Errorf("%w: tensor %d of %d (%v) is in device memory, which the host can't read; copy it to host memory first",
		tensorops.ErrShape, i+1, len(ts), ts[i])
}

// reads reports whether sending reads a tensor's elements, rather than passing the tensor on unchanged.
func (p *Port) reads(t tensorops.Tensor) bool {
	return p.remote || p.cfg.Scatter != nil || p.cfg.WireDType == tensorops.BFloat16 || !t.Contiguous()
}

// leaving converts tensors to the items of a message: without gaps, and split into this rank's parts and rounded if the
// Config says so. It owns the tensors.
func (p *Port) leaving(ts []tensorops.Tensor) (items []item, err error) {
	items = make([]item, len(ts))
	for i, t := range ts {
		items[i] = item{Tensor: t}
	}
	for i := range items {
		if err = p.closeGaps(&items[i]); err == nil {
			err = p.scatter(&items[i])
		}
		if err == nil {
			err = p.narrow(&items[i])
		}
		if err != nil {
			releaseItems(items)
			return nil, err
		}
	}
	return items, nil
}

// closeGaps copies a view of some columns, whose rows are not adjacent in memory.
func (p *Port) closeGaps(it *item) error {
	if it.Contiguous() {
		return nil
	}
	dense, err := p.copyOf(it.Tensor)
	if err != nil {
		return err
	}
	it.Release()
	it.Tensor = dense
	return nil
}

// copyOf copies a tensor in host memory, without gaps.
func (p *Port) copyOf(t tensorops.Tensor) (tensorops.Tensor, error) {
	to, err := tensorops.NewTensor(p.cfg.Arena, t.DType(), t.Shape()...)
	if err != nil {
		return to, err
	}
	rest := tensorops.Bytes(to)
	for _, run := range tensorops.Runs(t) {
		rest = rest[copy(rest, run):]
	}
	return to, nil
}

func (p *Port) scatter(it *item) error {
	g := p.cfg.Scatter
	if g == nil || g.Size() == 1 || it.Len()%g.Size() != 0 || it.Len() == 0 {
		return nil
	}
	n := it.Len() / g.Size()
	part, err := tensorops.NewTensor(p.cfg.Arena, it.DType(), n)
	if err != nil {
		return err
	}
	size := it.DType().Size()
	copy(tensorops.Bytes(part), tensorops.Bytes(it.Tensor)[g.Rank()*n*size:])
	whole := it.Shape()
	it.Release()
	it.Tensor, it.whole = part, whole
	return nil
}

func (p *Port) narrow(it *item) error {
	if p.cfg.WireDType != tensorops.BFloat16 || it.DType() != tensorops.Float32 {
		return nil
	}
	low, err := tensorops.NewTensor(p.cfg.Arena, tensorops.BFloat16, it.Shape()...)
	if err != nil {
		return err
	}
	to := tensorops.Elements[uint16](low)
	for i, v := range tensorops.Elements[float32](it.Tensor) {
		to[i] = tensorops.ToBFloat16(v)
	}
	it.Release()
	it.Tensor, it.narrow = low, true
	return nil
}

// arriving restores the sent tensors from a message's items, and calls done with them, possibly later.
func (p *Port) arriving(items []item, err error, done func([]tensorops.Tensor, error)) {
	if err != nil {
		done(nil, err)
		return
	}
	p.arrive(items, 0, done)
}

// arrive continues with item i. Gathering an item waits for the other ranks of the group.
func (p *Port) arrive(items []item, i int, done func([]tensorops.Tensor, error)) {
	for ; i < len(items); i++ {
		it := &items[i]
		if err := p.widen(it); err != nil {
			releaseItems(items)
			done(nil, err)
			return
		}
		if it.whole == nil {
			continue
		}
		dst, err := p.room(it)
		if err != nil {
			releaseItems(items)
			done(nil, err)
			return
		}
		op := &tensorops.Op{Kind: tensorops.KindCollective}
		tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: dst.View(dst.Len()), Src: it.Tensor, Group: p.cfg.Scatter}.Put(op)
		p.cfg.Scatter.Start(op, func(err error) {
			it.Release()
			it.Tensor, it.whole = dst, nil
			if err != nil {
				releaseItems(items)
				done(nil, err)
				return
			}
			p.arrive(items, i+1, done)
		})
		return
	}
	ts := make([]tensorops.Tensor, len(items))
	for k, it := range items {
		ts[k] = it.Tensor
	}
	done(ts, nil)
}

// room allocates the whole tensor for a received part.
func (p *Port) room(it *item) (tensorops.Tensor, error) {
	n := 1
	for _, d := range it.whole {
		n *= d
	}
	if g := p.cfg.Scatter; g == nil || n != it.Len()*g.Size() {
		return tensorops.Tensor{}, errParts(it, p)
	}
	return tensorops.NewTensor(p.cfg.Arena, it.DType(), it.whole...)
}

func (p *Port) widen(it *item) error {
	if !it.narrow {
		return nil
	}
	wide, err := tensorops.NewTensor(p.cfg.Arena, tensorops.Float32, it.Shape()...)
	if err != nil {
		return err
	}
	to := tensorops.Elements[float32](wide)
	for i, v := range tensorops.Elements[uint16](it.Tensor) {
		to[i] = tensorops.FromBFloat16(v)
	}
	it.Release()
	it.Tensor, it.narrow = wide, false
	return nil
}
