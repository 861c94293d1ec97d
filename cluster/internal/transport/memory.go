package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
)

// Memory is a network within a process, for tests. Its transports reach each other by name, which is
// their address. Messages between two transports keep their order, as over TCP.
type Memory struct {
	mu     sync.Mutex
	nodes  map[string]*memoryNode
	peers  map[string]Peer
	cut    map[pair]bool
	faults Faults
	random *rand.Rand // nil: no faults
	conns  map[*memoryConn]struct{}
}

// Faults configures faults of envelopes.
type Faults struct {
	Drop, Duplicate float64       // probabilities, 0 to 1
	Delay           time.Duration // the longest delay; later envelopes wait too
}

// pair has two names, the smaller first.
type pair [2]string

func pairOf(a, b string) pair {
	if b < a {
		a, b = b, a
	}
	return pair{a, b}
}

// NewMemory makes a network without faults.
func NewMemory() *Memory {
	return &Memory{
		nodes: make(map[string]*memoryNode),
		peers: make(map[string]Peer),
		cut:   make(map[pair]bool),
		conns: make(map[*memoryConn]struct{}),
	}
}

// Listen begins to receive as name, which becomes free again with Close. If system is not nil, name
// becomes its address. Listen panics if the name is in use.
func (n *Memory) Listen(name string, system *actor.ActorSystem, h Handlers) Transport {
	m := &memoryNode{net: n, name: name, handlers: h, inboxes: make(map[string]*inbox)}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[name] != nil {
		panic(fmt.Sprintf("transport: %s is already listening", name))
	}
	n.nodes[name] = m
	if system != nil {
		system.ProcessRegistry.Address = name
	}
	return m
}

// SetPeer sets the Peer that other processes see for name; the default is the zero Peer.
func (n *Memory) SetPeer(name string, p Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peers[name] = p
}

// SetFaults starts faults drawn from a seed. Faults{} ends them.
func (n *Memory) SetFaults(seed uint64, f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = f
	n.random = rand.New(rand.NewPCG(seed, 0))
}

// Cut breaks everything that is open between two processes, once: streams, and envelopes in transit.
func (n *Memory) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.breakConns(pairOf(a, b))
	for _, way := range [][2]string{{a, b}, {b, a}} {
		if to := n.nodes[way[1]]; to != nil {
			if in := to.inboxes[way[0]]; in != nil {
				in.empty()
			}
		}
	}
}

func (n *Memory) breakConns(between pair) {
	for c := range n.conns {
		if c.between == between {
			c.reset(false)
		}
	}
}

// Block partitions two processes: envelopes between them are lost, and dials and data on streams wait.
func (n *Memory) Block(a, b string) { n.setBlocked(a, b, true) }

// Heal ends Block.
func (n *Memory) Heal(a, b string) { n.setBlocked(a, b, false) }

func (n *Memory) setBlocked(a, b string, blocked bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[pairOf(a, b)] = blocked
	for c := range n.conns {
		if c.between == pairOf(a, b) {
			c.setBlocked(blocked)
		}
	}
}

// memoryNode is one of the processes of a Memory.
type memoryNode struct {
	net      *Memory
	name     string
	handlers Handlers
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup    // inboxes and streams' handlers
	inboxes  map[string]*inbox // by sender; guarded by net.mu
}

// inbox has the envelopes that one process sent to another.
type inbox struct{ queue chan letter }

type letter struct {
	data []byte
	from Peer
	due  time.Time
}

func (in *inbox) empty() {
	for {
		select {
		case <-in.queue:
		default:
			return
		}
	}
}

func (m *memoryNode) Address() string { return m.name }

func (m *memoryNode) Send(address string, e *wire.Envelope) {
	data, err := proto.Marshal(e)
	if err != nil || len(data) > LimitEnvelopeBytes {
		return
	}
	n := m.net
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.nodes[address]
	if to == nil || m.ctx.Err() != nil || n.cut[pairOf(m.name, address)] {
		return
	}
	in := to.inboxes[m.name]
	if in == nil {
		in = &inbox{queue: make(chan letter, LimitUnwrittenMessages)}
		to.inboxes[m.name] = in
		to.running.Add(1)
		go to.deliver(in) // ends with Close
	}
	l := letter{data: data, from: n.peers[m.name]}
	times := 1
	if n.random != nil {
		switch draw := n.random.Float64(); {
		case draw < n.faults.Drop:
			times = 0
		case draw < n.faults.Drop+n.faults.Duplicate:
			times = 2
		}
		if n.faults.Delay > 0 {
			l.due = time.Now().Add(time.Duration(n.random.Int64N(int64(n.faults.Delay))))
		}
	}
	for range times {
		select {
		case in.queue <- l:
		default: // full: lost
		}
	}
}

// Redial does nothing: there are no connections for envelopes.
func (m *memoryNode) Redial(string) {}

func (m *memoryNode) deliver(in *inbox) {
	defer m.running.Done()
	for {
		select {
		case <-m.ctx.Done():
			return
		case l := <-in.queue:
			if wait := time.Until(l.due); wait > 0 {
				select {
				case <-m.ctx.Done():
					return
				case <-time.After(wait):
				}
			}
			var e wire.Envelope
			if err := proto.Unmarshal(l.data, &e); err == nil && m.handlers.Envelope != nil {
				m.handlers.Envelope(l.from, &e)
			}
		}
	}
}

func (m *memoryNode) Dial(ctx context.Context, address, protocol string) (net.Conn, error) {
	if err := checkProtocol(protocol); err != nil {
		return nil, err
	}
	conn, err := m.dial(ctx, address, protocol)
	if err != nil {
		return nil, fmt.Errorf("dial %s for %s: %w", address, protocol, err)
	}
	return conn, nil
}

func (m *memoryNode) dial(ctx context.Context, address, protocol string) (net.Conn, error) {
	n := m.net
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		n.mu.Lock()
		if m.ctx.Err() != nil {
			n.mu.Unlock()
			return nil, ErrClosed
		}
		if !n.cut[pairOf(m.name, address)] {
			defer n.mu.Unlock()
			return m.connect(address, protocol)
		}
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.ctx.Done():
			return nil, ErrClosed
		case <-time.After(pause):
		}
	}
}

// connect is called under net.mu.
func (m *memoryNode) connect(address, protocol string) (net.Conn, error) {
	to := m.net.nodes[address]
	if to == nil {
		return nil, errors.New("connection refused: no process listens there")
	}
	handler := to.handlers.Streams[protocol]
	if handler == nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, errProtocol)
	}
	here, there := newMemoryConns(m.net, m.name, address)
	from := m.net.peers[m.name]
	to.running.Add(1)
	go func() { // ends with the handler, whose connection Close closes
		defer to.running.Done()
		handler(there, from)
	}()
	return here, nil
}

// Close breaks all open streams, including dialed ones, as the end of a process does. It waits up to LimitCloseTime
// for handlers to return.
func (m *memoryNode) Close() {
	n := m.net
	n.mu.Lock()
	if m.ctx.Err() != nil {
		n.mu.Unlock()
		return
	}
	m.cancel()
	delete(n.nodes, m.name)
	for c := range n.conns {
		if c.local.name == m.name {
			c.reset(true)
		}
	}
	n.mu.Unlock()
	ended := make(chan struct{})
	go func() { // ends with the handlers
		m.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(LimitCloseTime):
	}
}
