package p2p

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// Spec is the type and shape of a tensor.
type Spec struct {
	DType tensorops.DType
	Shape []int
}

func (s Spec) String() string { return fmt.Sprintf("%v%v", s.DType, s.Shape) }

// Like are the specs of tensors.
func Like(ts ...tensorops.Tensor) []Spec {
	specs := make([]Spec, len(ts))
	for i, t := range ts {
		specs[i] = Spec{t.DType(), t.Shape()}
	}
	return specs
}

// Call says more about a transfer.
type Call struct {
	// Want are the tensors that are expected; nil: any. Others are ErrUnexpected.
	Want []Spec
	// Prev and Next are the ranks to talk to in place of the stages before and behind; nil:
	// those.
	Prev, Next *int
	// End: the call is of the first stage's last layers, in a U-shape.
	End bool
}

// Received is what a transfer has brought: activations from the stage before, gradients from the one behind. They are
// the caller's to release.
type Received struct{ Forward, Backward []tensorops.Tensor }

// Handle is a call under way.
type Handle struct {
	ended chan struct{}
	mu    sync.Mutex
	left  int
	got   Received
	err   error
}

// Wait waits until all has been sent and received. When ctx ends before, the transfers go on.
func (h *Handle) Wait(ctx context.Context) (Received, error) {
	select {
	case <-h.ended:
	default:
		select {
		case <-h.ended:
		case <-ctx.Done():
			return Received{}, ctx.Err()
		}
	}
	return h.got, h.err
}

// Ended is closed when all has been sent and received.
func (h *Handle) Ended() <-chan struct{} { return h.ended }

func (h *Handle) end(err error, set func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && set != nil {
		set()
	}
	if h.err == nil {
		h.err = err
	}
	if h.left--; h.left == 0 {
		if h.err != nil {
			release(h.got.Forward)
			release(h.got.Backward)
			h.got = Received{}
		}
		close(h.ended)
	}
}

// part is one transfer of a call.
type part struct {
	way     Direction
	receive bool
	tensors []tensorops.Tensor
}

// begin starts the transfers of a call that the stage has.
func (p *Port) begin(c Call, parts ...part) *Handle {
	h := &Handle{ended: make(chan struct{}), left: len(parts)}
	for _, one := range parts {
		peer, has := p.peer(one, c)
		switch {
		case !has:
			if one.receive {
				h.end(nil, nil)
			} else {
				release(one.tensors) // who sends gives away
				h.end(nil, nil)
			}
		case peer < 0 || peer >= p.size:
			release(one.tensors)
			h.end(fmt.Errorf("stage %d, %v: %w: %d of %d", p.rank, one.way, ErrRank, peer, p.size), nil)
		case one.receive && p.grouped():
			p.beginShared(h, lane{peer, one.way}, c)
		case one.receive:
			p.beginReceive(h, lane{peer, one.way}, c)
		case p.grouped() && p.cfg.Group.Rank() > 0:
			release(one.tensors) // the first rank has the same
			h.end(nil, nil)
		default:
			p.beginSend(h, lane{peer, one.way}, one.tensors)
		}
	}
	return h
}

// peer is whom a transfer is with; false: the stage has none. The rules of a U-shape are those of
// MindSpeed's layer-wise disaggregated training.
func (p *Port) peer(one part, c Call) (rank int, has bool) {
	if one.way == Ring {
		if one.receive {
			return (p.rank + p.size - 1) % p.size, true
		}
		return (p.rank + 1) % p.size, true
	}
	before := (one.way == Forward) == one.receive // the stage before, not the one behind
	if before && c.Prev != nil {
		return *c.Prev, true
	}
	if !before && c.Next != nil {
		return *c.Next, true
	}
	first, last := p.IsFirst(), p.IsLast()
	switch {
	case p.cfg.UShape && before && first:
		return p.size - 1, c.End // the end of the first stage has the last one before it
	case p.cfg.UShape && !before && last:
		return 0, true
	case p.cfg.UShape && !before && first && c.End:
		return 0, false
	case before && first, !before && last:
		return 0, false
	case before:
		return p.rank - 1, true
	}
	return p.rank + 1, true
}

func (p *Port) beginSend(h *Handle, l lane, ts []tensorops.Tensor) {
	since := time.Now()
	if n := len(ts); n == 0 || n > LimitTensors || slices.ContainsFunc(ts, func(t tensorops.Tensor) bool { return !t.Valid() || !t.Contiguous() }) {
		release(ts)
		h.end(fmt.Errorf("stage %d, %v to stage %d: %w: 1 to %d contiguous tensors make a message", p.rank, l.way, l.peer, tensorops.ErrShape, LimitTensors), nil)
		return
	}
	items, err := p.leaving(ts)
	if err != nil {
		h.end(fmt.Errorf("stage %d, %v to stage %d: %w", p.rank, l.way, l.peer, err), nil)
		return
	}
	p.post(l, items, func(err error) {
		if err != nil {
			releaseItems(items)
			err = fmt.Errorf("stage %d, %v to stage %d: %w", p.rank, l.way, l.peer, err)
		}
		p.timed(l.way, "send", since)
		h.end(err, nil)
	})
}

func (p *Port) beginReceive(h *Handle, l lane, c Call) {
	since := time.Now()
	p.receive(l, func(items []item, err error) {
		p.arriving(items, err, func(ts []tensorops.Tensor, err error) {
			if err == nil {
				if err = expected(ts, c.Want); err != nil {
					release(ts)
				}
			}
			if err != nil {
				err = fmt.Errorf("stage %d, %v from stage %d: %w", p.rank, l.way, l.peer, err)
			}
			p.timed(l.way, "recv", since)
			h.end(err, func() {
				if l.way == Backward {
					h.got.Backward = ts
				} else {
					h.got.Forward = ts
				}
			})
		})
	})
}

// expected compares tensors with what a call wants.
func expected(ts []tensorops.Tensor, want []Spec) error {
	if want == nil {
		return nil
	}
	got := Like(ts...)
	if len(got) != len(want) || slices.ContainsFunc(slices.Collect(indices(len(got))), func(i int) bool {
		return got[i].DType != want[i].DType || !slices.Equal(got[i].Shape, want[i].Shape)
	}) {
		return fmt.Errorf("%w: %v came, %v is expected", ErrUnexpected, got, want)
	}
	return nil
}

func indices(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// RecvForward receives the activation of the stage before.
func (p *Port) RecvForward(c Call) *Handle { return p.begin(c, part{Forward, true, nil}) }

// RecvBackward receives the gradient of this stage's output from the stage behind.
func (p *Port) RecvBackward(c Call) *Handle { return p.begin(c, part{Backward, true, nil}) }

// SendForward sends this stage's output to the stage behind.
func (p *Port) SendForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, ts})
}

// SendBackward sends the gradient of this stage's input to the stage before.
func (p *Port) SendBackward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Backward, false, ts})
}

// SendForwardRecvBackward is both, with the stage behind.
func (p *Port) SendForwardRecvBackward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, ts}, part{Backward, true, nil})
}

// SendBackwardRecvForward is both, with the stage before.
func (p *Port) SendBackwardRecvForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Backward, false, ts}, part{Forward, true, nil})
}

// SendForwardRecvForward sends to the stage behind and receives from the one before.
func (p *Port) SendForwardRecvForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, ts}, part{Forward, true, nil})
}

// SendBackwardRecvBackward sends to the stage before and receives from the one behind.
func (p *Port) SendBackwardRecvBackward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Backward, false, ts}, part{Backward, true, nil})
}

// SendForwardBackwardRecvForwardBackward is all four. c.Want is of the activations; gradients may be any.
func (p *Port) SendForwardBackwardRecvForwardBackward(outputs, gradients []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, outputs}, part{Backward, false, gradients}, part{Forward, true, nil}, part{Backward, true, nil})
}

// RingForward sends to the next stage and receives from the one before; the last one is before the first.
func (p *Port) RingForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Ring, false, ts}, part{Ring, true, nil})
}
