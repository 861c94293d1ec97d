package p2p

import (
	"context"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Several are ports of one stage in several pipeline groups, such as those of a neighbour that is split otherwise:
// each call goes to all, and what comes is averaged, in float32, and rounded to its type again.
type Several []*Port

// SendForward sends copies of this stage's output to all groups.
func (s Several) SendForward(ctx context.Context, ts []tensorops.Tensor, c Call) error {
	return s.sendAll(ctx, ts, c, (*Port).SendForward)
}

// SendBackward sends copies of the gradient of this stage's input to all groups.
func (s Several) SendBackward(ctx context.Context, ts []tensorops.Tensor, c Call) error {
	return s.sendAll(ctx, ts, c, (*Port).SendBackward)
}

// RecvForward receives the mean of the activations of all groups.
func (s Several) RecvForward(ctx context.Context, c Call) ([]tensorops.Tensor, error) {
	return s.mean(ctx, func(p *Port) *Handle { return p.RecvForward(c) }, func(r Received) []tensorops.Tensor { return r.Forward })
}

// RecvBackward receives the mean of the gradients of all groups.
func (s Several) RecvBackward(ctx context.Context, c Call) ([]tensorops.Tensor, error) {
	return s.mean(ctx, func(p *Port) *Handle { return p.RecvBackward(c) }, func(r Received) []tensorops.Tensor { return r.Backward })
}

func (s Several) sendAll(ctx context.Context, ts []tensorops.Tensor, c Call, send func(*Port, []tensorops.Tensor, Call) *Handle) error {
	defer release(ts)
	handles := make([]*Handle, 0, len(s))
	for _, p := range s {
		own := make([]tensorops.Tensor, 0, len(ts))
		for _, t := range ts {
			u, err := tensorops.NewTensor(p.cfg.Arena, t.DType(), t.Shape()...)
			if err != nil {
				release(own)
				return err
			}
			copy(tensorops.Bytes(u), tensorops.Bytes(t))
			own = append(own, u)
		}
		handles = append(handles, send(p, own, c))
	}
	for _, h := range handles {
		if _, err := h.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s Several) mean(ctx context.Context, recv func(*Port) *Handle, of func(Received) []tensorops.Tensor) (sum []tensorops.Tensor, err error) {
	handles := make([]*Handle, len(s))
	for i, p := range s {
		handles[i] = recv(p)
	}
	all := make([][]tensorops.Tensor, 0, len(s))
	for _, h := range handles {
		got, werr := h.Wait(ctx)
		if werr != nil && err == nil {
			err = werr
		}
		all = append(all, of(got))
	}
	defer func() {
		for i, ts := range all {
			if i > 0 || err != nil {
				release(ts)
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	for k, ts := range all[1:] {
		if err = expected(ts, Like(all[0]...)); err != nil {
			return nil, fmt.Errorf("group %d of %d: %w", k+1, len(s), err)
		}
	}
	for i, t := range all[0] {
		if err = average(t, all, i); err != nil {
			return nil, err
		}
	}
	return all[0], nil
}

func average(t tensorops.Tensor, all [][]tensorops.Tensor, i int) error {
	n := float32(len(all))
	switch t.DType() {
	case tensorops.Float32:
		to := tensorops.Elements[float32](t)
		for k := range to {
			for _, ts := range all[1:] {
				to[k] += tensorops.Elements[float32](ts[i])[k]
			}
			to[k] /= n
		}
	case tensorops.BFloat16:
		to := tensorops.Elements[uint16](t)
		for k := range to {
			sum := tensorops.FromBFloat16(to[k])
			for _, ts := range all[1:] {
				sum += tensorops.FromBFloat16(tensorops.Elements[uint16](ts[i])[k])
			}
			to[k] = tensorops.ToBFloat16(sum / n)
		}
	default:
		return fmt.Errorf("%w: %v has no mean", ErrUnexpected, t.DType())
	}
	return nil
}
