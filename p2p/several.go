package p2p

import (
	"context"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// Several is a list of one stage's ports in several pipeline groups, such as those of a neighboring stage with another tensor
// split. A send goes to all groups. A receive returns the mean over the groups, computed in float32 and rounded to the
// tensors' type. With an empty list nothing is sent or received.
type Several []*Port

// SendForward sends copies of this stage's output to all groups.
func (s Several) SendForward(ctx context.Context, ts []tensorops.Tensor, c Call) error {
	return s.sendAll(ctx, ts, c, Forward)
}

// SendBackward sends copies of the gradient of this stage's input to all groups.
func (s Several) SendBackward(ctx context.Context, ts []tensorops.Tensor, c Call) error {
	return s.sendAll(ctx, ts, c, Backward)
}

// RecvForward receives the mean of the activations of all groups.
func (s Several) RecvForward(ctx context.Context, c Call) ([]tensorops.Tensor, error) {
	return s.mean(ctx, c, Forward)
}

// RecvBackward receives the mean of the gradients of all groups.
func (s Several) RecvBackward(ctx context.Context, c Call) ([]tensorops.Tensor, error) {
	return s.mean(ctx, c, Backward)
}

// check refuses a call before any group begins it, so that no group is ahead of the others.
func (s Several) check(c Call, one part) error {
	for i, p := range s {
		if p == nil {
			return fmt.Errorf("%w: the port of group %d of %d is nil", ErrRank, i+1, len(s))
		}
		err := p.checkPeers(c, []part{one})
		if err == nil {
			err = p.checkSends(c, []part{one})
		}
		if err != nil {
			return fmt.Errorf("group %d of %d: %w", i+1, len(s), err)
		}
	}
	return nil
}

func (s Several) sendAll(ctx context.Context, ts []tensorops.Tensor, c Call, way Direction) error {
	defer release(ts)
	one := part{way: way, tensors: ts}
	if err := s.check(c, one); err != nil {
		return err
	}
	sends := make([]part, 0, len(s))
	for i, p := range s {
		own, err := p.copies(one, c)
		if err != nil {
			releaseParts(sends)
			return fmt.Errorf("group %d of %d: %w", i+1, len(s), err)
		}
		sends = append(sends, part{way: way, tensors: own})
	}
	handles := make([]*Handle, len(s))
	for i, p := range s {
		handles[i] = p.begin(c, sends[i])
	}
	var first error
	for _, h := range handles {
		if _, err := h.Wait(ctx); first == nil {
			first = err
		}
	}
	return first
}

// copies returns copies of the tensors for a port; none if the port sends nothing.
func (p *Port) copies(one part, c Call) ([]tensorops.Tensor, error) {
	if _, has := p.peer(one, c); !has || !p.sends() {
		return nil, nil
	}
	own := make([]tensorops.Tensor, 0, len(one.tensors))
	for i, t := range one.tensors {
		if t.Buffer().Mem == nil && t.Len() > 0 {
			release(own)
			return nil, errDevice(i, one.tensors)
		}
		u, err := p.copyOf(t)
		if err != nil {
			release(own)
			return nil, err
		}
		own = append(own, u)
	}
	return own, nil
}

func (s Several) mean(ctx context.Context, c Call, way Direction) (sum []tensorops.Tensor, err error) {
	if len(s) == 0 {
		return nil, nil
	}
	one := part{way: way, receive: true}
	if err := s.check(c, one); err != nil {
		return nil, err
	}
	handles := make([]*Handle, len(s))
	for i, p := range s {
		handles[i] = p.begin(c, one)
	}
	all := make([][]tensorops.Tensor, 0, len(s))
	for _, h := range handles {
		got, werr := h.Wait(ctx)
		if werr != nil {
			h.abandon() // releases tensors that arrive after the wait ended early
			if err == nil {
				err = werr
			}
			continue
		}
		all = append(all, append(got.Forward, got.Backward...))
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
		return fmt.Errorf("%w: can't average tensors of type %v; want float32 or bfloat16", ErrUnexpected, t.DType())
	}
	return nil
}
