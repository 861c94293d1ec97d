package p2p

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// Spec is the data type and shape of a tensor.
type Spec struct {
	DType tensorops.DType
	Shape []int
}

func (s Spec) String() string { return fmt.Sprintf("%v%v", s.DType, s.Shape) }

// Like returns the specs of tensors.
func Like(ts ...tensorops.Tensor) []Spec {
	specs := make([]Spec, len(ts))
	for i, t := range ts {
		specs[i] = Spec{t.DType(), t.Shape()}
	}
	return specs
}

// Call has the options of a transfer.
type Call struct {
	// Want lists the expected tensors; others give ErrUnexpected. nil: any tensors.
	Want []Spec
	// Prev and Next replace the previous and the next stage as the peers; nil: the default. They have no effect for a
	// stage without a previous or a next stage.
	Prev, Next *int
	// End says that, in a U-shape, the call is for the last layers on the first stage.
	End bool
}

// Received has the received tensors: activations from the previous stage, gradients from the next one. The caller releases
// them.
type Received struct{ Forward, Backward []tensorops.Tensor }

// Handle is a call in progress.
type Handle struct {
	ended     chan struct{}
	mu        sync.Mutex
	left      int
	got       Received
	err       error
	abandoned bool // the caller no longer waits for tensors
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

// Ended returns a channel that is closed when all tensors have been sent and received.
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

// abandon releases the tensors that have arrived or will arrive, because the caller no longer waits for them.
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

// begin starts the transfers of a call. A refused call starts none of them: it sends nothing, and a later call receives the
// tensors.
func (p *Port) begin(c Call, parts ...part) *Handle {
	h := &Handle{ended: make(chan struct{}), left: len(parts)}
	since := time.Now()
	refused := p.checkPeers(c, parts)
	share := refused == nil && p.grouped() // all ranks of a group refuse the same stages, but only the first checks the tensors
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

// sends reports whether this rank sends for its stage. In a tensor group, whose ranks have equal tensors, the first one does.
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

// prepare makes the messages of the parts that send, before any is sent. It releases the tensors of the other parts, because
// the call owns them too.
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

// peer returns the peer of a transfer; false: the stage has none, whatever Call.Prev and Call.Next are. A U-shape follows the
// rules of MindSpeed's layer-wise disaggregated training.
func (p *Port) peer(one part, c Call) (rank int, has bool) {
	if one.way == Ring {
		if one.receive {
			return (p.rank + p.size - 1) % p.size, true
		}
		return (p.rank + 1) % p.size, true
	}
	toPrev := (one.way == Forward) == one.receive // with the previous stage, not the next one
	end := p.cfg.UShape && p.IsFirst() && c.End   // the end of the pipeline: the previous stage is the last one, and there is no next one
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

// expected compares tensors with the specs that a call wants.
func expected(ts []tensorops.Tensor, want []Spec) error {
	if want == nil {
		return nil
	}
	got := Like(ts...)
	if len(got) != len(want) || slices.ContainsFunc(slices.Collect(indices(len(got))), func(i int) bool {
		return got[i].DType != want[i].DType || !slices.Equal(got[i].Shape, want[i].Shape)
	}) {
		return fmt.Errorf("%w: got %v, want %v", ErrUnexpected, got, want)
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

// RecvForward receives the activations of the previous stage.
func (p *Port) RecvForward(c Call) *Handle { return p.begin(c, part{Forward, true, nil}) }

// RecvBackward receives the gradients of this stage's output from the next stage.
func (p *Port) RecvBackward(c Call) *Handle { return p.begin(c, part{Backward, true, nil}) }

// SendForward sends this stage's output to the next stage.
func (p *Port) SendForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, ts})
}

// SendBackward sends the gradients of this stage's input to the previous stage.
func (p *Port) SendBackward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Backward, false, ts})
}

// SendForwardRecvBackward is SendForward and RecvBackward in one call, with the next stage.
func (p *Port) SendForwardRecvBackward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, ts}, part{Backward, true, nil})
}

// SendBackwardRecvForward is SendBackward and RecvForward in one call, with the previous stage.
func (p *Port) SendBackwardRecvForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Backward, false, ts}, part{Forward, true, nil})
}

// SendForwardRecvForward sends this stage's output to the next stage and receives the activations of the previous one.
func (p *Port) SendForwardRecvForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, ts}, part{Forward, true, nil})
}

// SendBackwardRecvBackward sends the gradients of this stage's input to the previous stage and receives gradients from the
// next one.
func (p *Port) SendBackwardRecvBackward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Backward, false, ts}, part{Backward, true, nil})
}

// SendForwardBackwardRecvForwardBackward does all four in one call. c.Want applies to the activations; gradients may be any
// tensors.
func (p *Port) SendForwardBackwardRecvForwardBackward(outputs, gradients []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Forward, false, outputs}, part{Backward, false, gradients}, part{Forward, true, nil}, part{Backward, true, nil})
}

// RingForward sends to the next stage and receives from the previous one. The first stage follows the last.
func (p *Port) RingForward(ts []tensorops.Tensor, c Call) *Handle {
	return p.begin(c, part{Ring, false, ts}, part{Ring, true, nil})
}
