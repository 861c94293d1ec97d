package collective

import (
	"context"

	"github.com/troupe-ml/troupe/tensorops"
)

// Handle is a collective in progress.
type Handle struct {
	ended chan struct{}
	err   error
}

// Wait waits for the end of the collective. If ctx ends first, the collective continues, and its
// tensors are still in use.
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

// Do starts a collective in this group, whatever group the arguments contain.
func (g *Group) Do(a tensorops.CollectiveArgs) *Handle {
	h := &Handle{ended: make(chan struct{})}
	g.begin(a, func(err error) {
		h.err = err
		close(h.ended)
	})
	return h
}

// AllReduce starts t = the reduction of the members' t, in place.
func (g *Group) AllReduce(t tensorops.Tensor, how tensorops.Reduction) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.AllReduce, Dst: t, Src: t, How: how})
}

// ReduceScatter starts dst = this member's part, along dimension dim, of the reduction of the
// members' src. With dimension 0, dst may be that part of src.
func (g *Group) ReduceScatter(dst, src tensorops.Tensor, dim int, how tensorops.Reduction) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Dst: dst, Src: src, Dim: dim, How: how})
}

// AllGather starts dst = the members' src, one after another along dimension dim. With dimension 0,
// src may be this member's part of dst.
func (g *Group) AllGather(dst, src tensorops.Tensor, dim int) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.AllGather, Dst: dst, Src: src, Dim: dim})
}

// Broadcast starts t = the t of the member with rank root, in place.
func (g *Group) Broadcast(t tensorops.Tensor, root int) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.Broadcast, Dst: t, Src: t, Root: root})
}

// AllToAll starts an exchange: part i of src, along its first dimension, goes to member i, into the
// part of dst for this member.
func (g *Group) AllToAll(dst, src tensorops.Tensor) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.AllToAll, Dst: dst, Src: src})
}

// RingForward starts dst = the src of the previous member; the last member comes before the first.
func (g *Group) RingForward(dst, src tensorops.Tensor) *Handle {
	return g.Do(tensorops.CollectiveArgs{What: tensorops.RingForward, Dst: dst, Src: src})
}

// Barrier starts a wait until all members have reached it.
func (g *Group) Barrier() *Handle { return g.Do(tensorops.CollectiveArgs{What: tensorops.Barrier}) }
