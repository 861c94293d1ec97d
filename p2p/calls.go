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
	// Prev and Next are the stages to talk to instead of the previous and the next one; nil: those. A stage that has no
	// previous or next one talks to none, whatever they are.
	Prev, Next *int
	// End: the call is of the first stage's last layers, in a U-shape.
	End bool
}

// Received is what a transfer has brought: activations from the stage before, gradients from the one behind. They are
// the caller's to release.
type Received struct{ Forward, Backward []tensorops.Tensor }

// Handle is a call under way.
type Handle struct {
	ended     chan struct{}
	mu        sync.Mutex
	left      int
	got       Received
	err       error
	abandoned bool // nobody waits any more for what comes
}

// Wait waits until every tensor has been sent and received. If ctx ends first, the transfers continue. With any other
// error, Received holds the tensors that arrived, and the caller releases them: a failed send loses no received tensor.
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

// end ends one part of the call.
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
		h.dropAbandoned()
		close(h.ended)
	}
}

// abandon releases what has come, and what is still to come, since nobody waits for it any more.
func (h *Handle) abandon() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abandoned = true
	if h.left == 0 {
		h.dropAbandoned()
	}
}

// dropAbandoned is called with mu held when all parts have ended.
func (h *Handle) dropAbandoned() {
	if h.abandoned {
		release(h.got.Forward)
		release(h.got.Backward)
		h.got = Received{}
	}
}

// part is one transfer of a call.
type part struct {
	way     Direction
	receive bool
	tensors []tensorops.Tensor
}

// begin starts the transfers of a call that the stage has. A call that is refused starts none of them: nothing is sent, and
// what is to be received waits for a later call.
func (p *Port) begin(c Call, parts ...part) *Handle {
	h := &Handle{ended: make(chan struct{}), left: len(parts)}
	since := time.Now()
	refused := p.checkPeers(c, parts)
	share := refused == nil && p.grouped() // all ranks of a group refuse the same stages, but only the first looks at tensors
	if refused == nil {
		refused = p.checkSends(c, parts)
	}
	var sends [][]item
	if refused == nil {
		sends, refused = p.prepare(c, parts)
	} else {
		releaseParts(parts)
	}
	for i, one := range parts {
		peer, has := p.peer(one, c)
		l := lane{peer, one.way}
		switch {
		case has && one.receive && share:
			p.beginShared(h, l, c, since, refused)
		case refused != nil || !has:
			h.end(refused, nil)
		case one.receive:
			p.beginReceive(h, l, c, since)
		case p.sends():
			p.beginSend(h, l, sends[i], since)
		default:
			h.end(nil, nil)
		}
	}
	return h
}

// sends reports whether this rank sends for its stage: in a tensor group the first one does, which has the same tensors as the
// others.
func (p *Port) sends() bool { return !p.grouped() || p.cfg.Group.Rank() == 0 }

// checkPeers refuses stages that don't exist.
func (p *Port) checkPeers(c Call, parts []part) error {
	for _, one := range parts {
		if peer, has := p.peer(one, c); has && (peer < 0 || peer >= p.size) {
			return fmt.Errorf("stage %d, %v: %w: stage %d of %d; Call.Prev and Call.Next are 0 to %d", p.rank, one.way, ErrRank, peer, p.size,
				p.size-1)
		}
	}
	return nil
}

// checkSends refuses tensors that can't be sent.
func (p *Port) checkSends(c Call, parts []part) error {
	for _, one := range parts {
		if peer, has := p.peer(one, c); has && !one.receive && p.sends() {
			if err := p.sendable(one.tensors); err != nil {
				return p.sendError(lane{peer, one.way}, err)
			}
		}
	}
	return nil
}

// prepare makes the messages of the parts that send, and releases the tensors of those that don't, which are given away all
// the same. All messages are there before one is sent.
func (p *Port) prepare(c Call, parts []part) ([][]item, error) {
	sends := make([][]item, len(parts))
	for i, one := range parts {
		peer, has := p.peer(one, c)
		if one.receive || !has || !p.sends() {
			release(one.tensors)
			continue
		}
		var err error
		if sends[i], err = p.leaving(one.tensors); err != nil {
			releaseParts(parts[i+1:])
			for _, items := range sends[:i] {
				releaseItems(items)
			}
			return nil, p.sendError(lane{peer, one.way}, err)
		}
	}
	return sends, nil
}

func releaseParts(parts []part) {
	for _, one := range parts {
		release(one.tensors)
	}
}

func (p *Port) sendError(l lane, err error) error {
	return fmt.Errorf("stage %d, %v to stage %d: %w", p.rank, l.way, l.peer, err)
}

// peer is whom a transfer is with; false: the stage has none, whatever Call.Prev and Call.Next are. The rules of a U-shape
// are those of MindSpeed's layer-wise disaggregated training.
func (p *Port) peer(one part, c Call) (rank int, has bool) {
	if one.way == Ring {
		if one.receive {
			return (p.rank + p.size - 1) % p.size, true
		}
		return (p.rank + 1) % p.size, true
	}
	toPrev := (one.way == Forward) == one.receive // with the previous stage, not the next one
	end := p.cfg.UShape && p.IsFirst() && c.End   // of the pipeline: the previous stage is the last one, and there is no next one
	switch {
	case toPrev && p.IsFirst() && !end, !toPrev && end, !toPrev && p.IsLast() && !p.cfg.UShape:
		return 0, false
	case toPrev && c.Prev != nil:
		return *c.Prev, true
	case !toPrev && c.Next != nil:
		return *c.Next, true
	case toPrev:
		return (p.rank + p.size - 1) % p.size, true
	}
	return (p.rank + 1) % p.size, true
}

func (p *Port) beginSend(h *Handle, l lane, items []item, since time.Time) {
	p.post(l, items, func(err error) {
		if err != nil {
			releaseItems(items)
			err = p.sendError(l, err)
		}
		p.timed(l.way, "send", since)
		h.end(err, nil)
	})
}

func (p *Port) beginReceive(h *Handle, l lane, c Call, since time.Time) {
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
