package p2p

import (
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// If stages have tensor groups of different sizes, the first rank of a group receives the messages for the stage and
// broadcasts them to the other ranks: first the types and shapes, then the tensors one by one. A group's broadcasts follow
// the order of the calls; a message that arrives before its turn waits.

// ErrFirst: the first rank of the group could not receive.
var ErrFirst = errors.New("the first rank of the tensor group received nothing")

// Member makes the port of a rank in a stage's tensor group that is not the first. The port sends nothing, and receives the
// tensors that the first rank broadcasts.
func Member(stage, stages int, cfg Config) *Port {
	p := newPort(stage, stages, cfg)
	p.send = func(_ int, _ message, done func(error)) {
		done(fmt.Errorf("%w: only the first rank of a tensor group sends", ErrRank))
	}
	return p
}

func (p *Port) grouped() bool { return p.cfg.Group != nil && p.cfg.Group.Size() > 1 }

// sharing has the receives of a group's rank, in the order of the calls.
type sharing struct {
	turn    []*shared
	going   bool // the broadcasts of one receive are in progress
	closing bool // the port is closed, but its own memory is not yet
}

// shared is a receive whose tensors the group shares.
type shared struct {
	ready bool // the first rank has the tensors, or this is another rank's port
	items []tensorops.Tensor
	err   error
	done  func([]tensorops.Tensor, error)
}

// beginShared receives tensors for all ranks of the group. If the first rank's call was refused, it tells the others, which
// wait for its broadcast, that nothing comes.
func (p *Port) beginShared(h *Handle, l lane, c Call, since time.Time, refused error) {
	s := &shared{done: func(ts []tensorops.Tensor, err error) {
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
	}}
	p.mu.Lock()
	if err := p.closed; err != nil {
		p.mu.Unlock()
		s.done(nil, err)
		return
	}
	p.shared.turn = append(p.shared.turn, s)
	p.mu.Unlock()
	if p.cfg.Group.Rank() > 0 || refused != nil {
		p.share(s, nil, refused)
		return
	}
	p.receive(l, func(items []item, err error) {
		p.arriving(items, err, func(ts []tensorops.Tensor, err error) { p.share(s, ts, err) })
	})
}

// share marks a receive as ready for its turn, and begins the turn if it has come.
func (p *Port) share(s *shared, ts []tensorops.Tensor, err error) {
	p.mu.Lock()
	s.ready, s.items, s.err = true, ts, err
	p.mu.Unlock()
	p.nextShared()
}

func (p *Port) nextShared() {
	p.mu.Lock()
	q := &p.shared
	if q.going || len(q.turn) == 0 || !q.turn[0].ready {
		p.mu.Unlock()
		return
	}
	s := q.turn[0]
	q.turn, q.going = q.turn[1:], true
	p.mu.Unlock()
	p.broadcast(s, func(ts []tensorops.Tensor, err error) {
		p.mu.Lock()
		p.shared.going = false
		p.mu.Unlock()
		s.done(ts, err)
		p.nextShared()
		p.closeOwn()
	})
}

// metaNumbers is how many numbers describe a message: the number of tensors, and for each its type, its number of
// dimensions, and the dimensions.
const metaNumbers = 1 + LimitTensors*(2+tensorops.MaxRank)

// noTensors replaces the number of tensors if the first rank has none.
const noTensors = -1

// broadcast shares a message with the group.
func (p *Port) broadcast(s *shared, done func([]tensorops.Tensor, error)) {
	meta, err := tensorops.NewTensor(p.cfg.Arena, tensorops.Int32, metaNumbers)
	if err != nil {
		release(s.items)
		done(nil, err)
		return
	}
	first := p.cfg.Group.Rank() == 0
	numbers := tensorops.Elements[int32](meta)
	clear(numbers)
	switch {
	case first && s.err != nil:
		numbers[0] = noTensors
	case first:
		copy(numbers, metaOf(Like(s.items...)))
	}
	p.start(meta, func(err error) {
		failed := numbers[0] == noTensors
		specs, ok := readMetaPrefix(numbers)
		meta.Release()
		switch {
		case s.err != nil:
			err = s.err
		case err != nil:
		case failed:
			err = ErrFirst
		case !ok:
			err = fmt.Errorf("%w: the %d numbers from the first rank are not types and shapes", ErrUnexpected, metaNumbers)
		}
		if err != nil {
			release(s.items)
			done(nil, err)
			return
		}
		if !first {
			for _, spec := range specs {
				t, err := tensorops.NewTensor(p.cfg.Arena, spec.DType, spec.Shape...)
				if err != nil {
					release(s.items)
					p.cfg.Group.Abandon(err) // otherwise the other ranks would wait for this one
					done(nil, err)
					return
				}
				s.items = append(s.items, t)
			}
		}
		p.broadcastTensors(s.items, 0, done)
	})
}

func (p *Port) broadcastTensors(ts []tensorops.Tensor, i int, done func([]tensorops.Tensor, error)) {
	if i == len(ts) {
		done(ts, nil)
		return
	}
	p.start(ts[i].View(ts[i].Len()), func(err error) {
		if err != nil {
			release(ts)
			done(nil, err)
			return
		}
		p.broadcastTensors(ts, i+1, done)
	})
}

// start begins a broadcast from the first rank.
func (p *Port) start(t tensorops.Tensor, done func(error)) {
	op := &tensorops.Op{Kind: tensorops.KindCollective}
	tensorops.CollectiveArgs{What: tensorops.Broadcast, Dst: t, Src: t, Group: p.cfg.Group}.Put(op)
	p.cfg.Group.Start(op, done)
}
