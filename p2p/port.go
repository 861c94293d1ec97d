package p2p

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// Errors of transfers.
var (
	// ErrUnexpected: the received tensors are not those that the call wants.
	ErrUnexpected = errors.New("unexpected tensors")
	// ErrFull: LimitUnread messages wait for a call that receives them. No more can be sent in this direction; receiving
	// calls get the waiting messages, and then this error.
	ErrFull = errors.New("too many messages are unread")
	// ErrClosed: the port was closed.
	ErrClosed = errors.New("the port is closed")
	// ErrRank: the rank does not exist.
	ErrRank = errors.New("no such rank")
)

// Direction is the direction of a message.
type Direction uint8

// The directions: Ring is that of RingForward.
const (
	Forward Direction = iota
	Backward
	Ring
	numDirections
)

func (d Direction) String() string {
	return [...]string{"forward", "backward", "ring", "unknown"}[min(d, numDirections)]
}

// Config configures a port.
type Config struct {
	// UShape says that the first stage also has the pipeline's last layers (MindSpeed's layer-wise disaggregated
	// training): the last stage sends it its output, and it returns the gradients.
	UShape bool
	// Arena has the memory for tensors from other processes; nil: the port's own host memory.
	Arena tensorops.Arena
	// WireDType, if it is tensorops.BFloat16, rounds float32 tensors to it for the transfer. That halves the bytes, but
	// results then depend on where the model is cut into stages.
	WireDType tensorops.DType
	// Scatter is the tensor group of this stage for scatter_gather_tensors: each of its ranks sends its
	// part of a tensor, if the number of elements is divisible by the group's size, and received parts are
	// gathered. Communicating stages need groups of the same size. nil: ranks send whole tensors.
	Scatter *collective.Group
	// Group is the tensor group of this stage if stages have groups of different sizes (variable TP). Only its first rank
	// sends to and receives from the first ranks of other stages. It broadcasts received tensors to the other ranks, whose
	// ports Member makes. All ranks make the same calls in the same order; nothing else may use the group meanwhile.
	Group *collective.Group
}

// Port is a stage's end of the transfers to other stages. It is safe for concurrent use; messages in one direction arrive
// in the order of the calls.
type Port struct {
	cfg        Config
	rank, size int
	send       func(to int, m message, done func(error))
	remote     bool            // the other stages are in other processes
	own        tensorops.Arena // the port's own if Config has none; closed with the port

	mu     sync.Mutex
	sent   map[lane]uint64
	asked  map[lane]uint64
	came   map[address][]item
	unread map[lane]int
	over   map[lane]uint64 // for a lane with too many messages: the number of the first refused one
	wait   map[address]func([]item, error)
	closed error
	timers map[string]Timer

	shared sharing // pending broadcasts
}

// lane is a direction, to or from a rank.
type lane struct {
	peer int
	way  Direction
}

// address identifies a message of a lane.
type address struct {
	lane
	number uint64
}

// message is a message to another port.
type message struct {
	way    Direction
	number uint64
	items  []item
}

// item is a tensor in transit.
type item struct {
	tensorops.Tensor
	narrow bool  // it was float32 and will be float32 again
	whole  []int // the shape of the whole tensor, if this is a rank's part; nil: it is whole
}

// Timer counts calls and the time that they took, from the call until all its tensors were transferred.
type Timer struct {
	Calls int
	Total time.Duration
}

// Local makes the ports of n stages in this process, in order. With Config.Group, which differs from stage to stage, use
// LocalOf.
func Local(n int, cfg Config) []*Port {
	return LocalOf(slices.Repeat([]Config{cfg}, n))
}

// LocalOf is Local with a Config for each stage.
func LocalOf(cfg []Config) []*Port {
	ports := make([]*Port, len(cfg))
	for rank := range ports {
		ports[rank] = newPort(rank, len(cfg), cfg[rank])
		ports[rank].send = func(to int, m message, done func(error)) { done(ports[to].deliver(rank, m)) }
	}
	return ports
}

func newPort(rank, size int, cfg Config) *Port {
	p := &Port{cfg: cfg, rank: rank, size: size, sent: make(map[lane]uint64), asked: make(map[lane]uint64),
		came: make(map[address][]item), unread: make(map[lane]int), over: make(map[lane]uint64), wait: make(map[address]func([]item, error)),
		timers: make(map[string]Timer)}
	if p.cfg.Arena == nil {
		p.own = tensorops.NewHostMemory(0).NewArena(fmt.Sprintf("port of stage %d", rank))
		p.cfg.Arena = p.own
	}
	return p
}

// Rank returns the stage's number in the pipeline.
func (p *Port) Rank() int { return p.rank }

// Size returns the number of stages.
func (p *Port) Size() int { return p.size }

// IsFirst reports whether the stage is the first one.
func (p *Port) IsFirst() bool { return p.rank == 0 }

// IsLast reports whether the stage is the last one.
func (p *Port) IsLast() bool { return p.rank == p.size-1 }

// Timers returns the timers by name: forward-recv, forward-send, backward-recv and backward-send.
func (p *Port) Timers() map[string]Timer {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]Timer, len(p.timers))
	for name, t := range p.timers {
		all[name] = t
	}
	return all
}

func (p *Port) timed(way Direction, what string, since time.Time) {
	if way == Ring {
		return
	}
	name := way.String() + "-" + what
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.timers[name]
	p.timers[name] = Timer{t.Calls + 1, t.Total + time.Since(since)}
}

// Close ends waiting calls with ErrClosed and cause, and releases messages that no call has received. A broadcast of
// Config.Group in progress continues until all its ranks take part or the group is left. If Config has no Arena, received
// tensors must not be used after Close.
func (p *Port) Close(cause error) {
	p.mu.Lock()
	if p.closed != nil {
		p.mu.Unlock()
		return
	}
	p.closed = ErrClosed
	if cause != nil {
		p.closed = fmt.Errorf("%w: %w", ErrClosed, cause)
	}
	err, waiting, came := p.closed, p.wait, p.came
	p.wait, p.came = nil, nil
	p.mu.Unlock()
	for _, done := range waiting {
		done(nil, err)
	}
	for _, ts := range came {
		releaseItems(ts)
	}
	p.mu.Lock()
	p.shared.closing = true
	p.mu.Unlock()
	p.closeOwn()
}

// closeOwn closes the port's own memory once the port is closed and no broadcast uses the memory any more.
func (p *Port) closeOwn() {
	p.mu.Lock()
	s := &p.shared
	now := s.closing && !s.going && len(s.turn) == 0
	if now {
		s.closing = false
	}
	p.mu.Unlock()
	if now && p.own != nil {
		p.own.Close()
	}
}

func release(ts []tensorops.Tensor) {
	for _, t := range ts {
		t.Release()
	}
}

func releaseItems(items []item) {
	for _, t := range items {
		t.Release()
	}
}

// deliver handles a message from another port.
func (p *Port) deliver(from int, m message) error {
	l := lane{from, m.way}
	at := address{l, m.number}
	p.mu.Lock()
	done := p.wait[at]
	_, over := p.over[l]
	switch {
	case p.closed != nil:
		defer p.mu.Unlock()
		return p.closed
	case done != nil:
		delete(p.wait, at)
	case over, p.unread[l] >= LimitUnread:
		defer p.mu.Unlock()
		if !over { // a later message must not take this one's place
			p.over[l] = m.number
		}
		return p.errFull(l)
	default:
		p.unread[l]++
		p.came[at] = m.items
	}
	p.mu.Unlock()
	if done != nil {
		done(m.items, nil)
	}
	return nil
}

func (p *Port) errFull(l lane) error {
	return fmt.Errorf("stage %d, %v from stage %d: %w: %d, the limit", p.rank, l.way, l.peer, ErrFull, LimitUnread)
}

// receive calls done with the next message of a lane, when it has arrived.
func (p *Port) receive(l lane, done func([]item, error)) {
	p.mu.Lock()
	at := address{l, p.asked[l]}
	if p.closed != nil {
		err := p.closed
		p.mu.Unlock()
		done(nil, err)
		return
	}
	if first, over := p.over[l]; over && at.number >= first {
		p.mu.Unlock()
		done(nil, p.errFull(l))
		return
	}
	p.asked[l]++
	ts, there := p.came[at]
	if there {
		delete(p.came, at)
		p.unread[l]--
	} else {
		p.wait[at] = done
	}
	p.mu.Unlock()
	if there {
		done(ts, nil)
	}
}

// post sends the next message of a lane.
func (p *Port) post(l lane, items []item, done func(error)) {
	p.mu.Lock()
	err := p.closed
	m := message{l.way, p.sent[l], items}
	if err == nil {
		p.sent[l]++
	}
	p.mu.Unlock()
	if err != nil {
		done(err)
		return
	}
	p.send(l.peer, m, done)
}
