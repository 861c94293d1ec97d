package collective

import (
	"context"

	"github.com/troupe-ml/troupe/tensorops"
)

// Handle is a collective under way.
type Handle struct {
	ended chan struct{}
	err   error
}

// Wait waits for the collective's end. When ctx ends before it, the collective goes on, and its tensors are still
// in use.
func (h *Handle) Wait(ctx context.Context) error {
	select {
	case <-h.ended:
		return h.err
	default:
	}
	select {
	case <-h.ended:
		return h.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ended is closed when the collective has ended.
func (h *Handle) Ended() <-chan struct{} { return h.ended }

// Do begins a collective. Its group is this one, whatever the arguments say.
func (g *Group) Do(a tensorops.CollectiveArgs) *Handle {
	h := &Handle{ended: make(chan struct{})}
	g.begin(a, func(err error) {
		h.err = err
		close(h.ended)
	})
	return h
}

// AllReduce begins t = the reduction of the members' t, in place.
func (g *Group) AllReduce(t tensorops.Tensor, how tensorops.Reduction) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: t, Src: t, How: how})
}

// ReduceScatter begins dst = this member's part, along dimension dim, of the reduction of the members' src. With
// dimension 0, dst may be that part of src.
func (g *Group) ReduceScatter(dst, src tensorops.Tensor, dim int, how tensorops.Reduction) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Dst: dst, Src: src, Dim: dim, How: how})
}

// AllGather begins dst = the members' src one after another along dimension dim. With dimension 0, src may be
// this member's part of dst.
func (g *Group) AllGather(dst, src tensorops.Tensor, dim int) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: dst, Src: src, Dim: dim})
}

// Broadcast begins t = t of the member whose rank is root, in place.
func (g *Group) Broadcast(t tensorops.Tensor, root int) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.Broadcast, Dst: t, Src: t, Root: root})
}

// AllToAll begins to make part i of src, along its first dimension, this member's part of dst of the member
// with rank i.
func (g *Group) AllToAll(dst, src tensorops.Tensor) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.AllToAll, Dst: dst, Src: src})
}

// RingForward begins dst = src of the member before this one; the last one is before the first.
func (g *Group) RingForward(dst, src tensorops.Tensor) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.RingForward, Dst: dst, Src: src})
}

// Barrier begins to wait until all members have come here.
func (g *Group) Barrier() *Handle { return g.Do(tensorops.CollectiveArgs{What: tensorops.Barrier}) }
