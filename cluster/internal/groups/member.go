package groups

import (
	"fmt"
	"sync"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/collective"
)

// member carries the messages from and to one member of a group. It is the member's collective.Carrier.
type member struct {
	port      *Port
	place     place
	processes []lane.ID
	digest    lane.ID
	out, in   []*lane.Group // by rank; nil for those of this process

	mu       sync.Mutex
	idle     sync.Cond
	group    *collective.Group
	receiver collective.Receiver
	closed   bool
	here     []bool // by rank: whether the member is open
	waiting  [][]message
	busy     int // messages between members of this process that are being copied
}

// message waits for its receiver to open.
type message struct {
	header  []byte
	payload [][]byte
	left    func(free bool)
	done    func(error)
}

func newMember(p *Port, at place, processes []lane.ID) *member {
	n := len(processes)
	m := &member{port: p, place: at, processes: processes, digest: digest(processes), out: make([]*lane.Group, n), in: make([]*lane.Group, n),
		here: make([]bool, n), waiting: make([][]message, n)}
	m.idle.L = &m.mu
	return m
}

func (m *member) setGroup(g *collective.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.group = g
}

// end returns the member's group; nil: it is still being opened.
func (m *member) end() *collective.Group {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.group
}

func (m *member) status() (collective.Status, bool) {
	g := m.end()
	if g == nil {
		return collective.Status{}, false
	}
	return g.Status()
}

// Receive implements collective.Carrier: from now on the member is open.
func (m *member) Receive(r collective.Receiver) {
	p := m.port
	for rank, process := range m.processes {
		if process == p.self {
			continue
		}
		m.out[rank] = p.node.Open(p.id(m.place.name, m.place.rank, rank), nil)
		m.in[rank] = p.node.OpenLoans(p.id(m.place.name, rank, m.place.rank),
			func(from lane.ID, header []byte, lens []int, loan *lane.Loan) ([][]byte, func(error), error) {
				if from != process {
					return nil, nil, fmt.Errorf("%w: process %s does not have rank %d of group %s", errNote, p.cfg.Name(from), rank, m.place.name)
				}
				if loan == nil {
					return r.Take(rank, header, lens, nil)
				}
				return r.Take(rank, header, lens, loan)
			})
	}
	m.mu.Lock()
	m.receiver = r
	m.mu.Unlock()

	var early []note
	p.mu.Lock()
	for h, members := range p.early {
		if h.to == m.place {
			delete(p.early, h)
			if h.from.rank < len(m.processes) && m.processes[h.from.rank] == h.process {
				early = append(early, note{kind: kindHere, from: h.from.rank, members: members})
			}
		}
	}
	var neighbours []*member
	for rank, process := range m.processes {
		if other := p.open[place{m.place.name, rank}]; process == p.self && other != nil && other != m {
			neighbours = append(neighbours, other)
		}
	}
	p.mu.Unlock()
	for _, n := range early {
		m.arrived(n)
	}
	for _, other := range neighbours {
		if other.isOpen() {
			m.arrived(note{from: other.place.rank, members: other.digest})
			other.arrived(note{from: m.place.rank, members: m.digest})
		}
	}
	m.greet(true)
}

func (m *member) isOpen() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.receiver != nil && !m.closed
}

// greet tells the other members that this one is open: all of them, or those that have not answered.
func (m *member) greet(all bool) {
	m.mu.Lock()
	var to []int
	for rank, process := range m.processes {
		if process != m.port.self && (all || !m.here[rank]) && m.receiver != nil && !m.closed {
			to = append(to, rank)
		}
	}
	m.mu.Unlock()
	for _, rank := range to {
		m.say(kindHello, rank, nil)
	}
}

func (m *member) say(kind byte, to int, text []byte) {
	m.port.tell(m.processes[to], note{kind: kind, name: m.place.name, from: m.place.rank, to: to, members: m.digest, text: text}, nil)
}

// note handles another member's control message.
func (m *member) note(from lane.ID, n note) {
	if n.from >= len(m.processes) || n.from == m.place.rank || m.processes[n.from] != from {
		m.port.cfg.Logger.Warn("dropped a message", "from", m.port.cfg.Name(from), "group", m.place.name, "why", "the sender is not a member",
			"rank",
			n.from)
		return
	}
	m.mu.Lock()
	r, closed := m.receiver, m.closed
	m.mu.Unlock()
	if r == nil || closed {
		return // greet repeats it
	}
	switch n.kind {
	case kindHello:
		m.say(kindHere, n.from, nil)
		m.arrived(n)
	case kindHere:
		m.arrived(n)
	case kindNote:
		r.Told(n.from, n.text)
	}
}

// arrived notes that another member is open, and sends it the waiting messages.
func (m *member) arrived(n note) {
	if n.members != m.digest {
		m.mu.Lock()
		r := m.receiver
		m.mu.Unlock()
		r.Gone(n.from, fmt.Errorf("its list of the group's members differs from the one here, which has %d", len(m.processes)))
		return
	}
	m.mu.Lock()
	m.here[n.from] = true
	list := m.waiting[n.from]
	m.waiting[n.from] = nil
	m.mu.Unlock()
	for _, w := range list {
		m.transmit(n.from, w)
	}
}

// Send implements collective.Carrier.
func (m *member) Send(to int, header []byte, payload [][]byte, left func(free bool), done func(error)) {
	w := message{header, payload, left, done}
	m.mu.Lock()
	switch {
	case m.closed:
		m.mu.Unlock()
		done(ErrClosed)
	case !m.here[to]:
		m.waiting[to] = append(m.waiting[to], w) // bounded by the messages that a group may have in flight
		m.mu.Unlock()
	default:
		m.mu.Unlock()
		m.transmit(to, w)
	}
}

func (m *member) transmit(to int, w message) {
	if out := m.out[to]; out != nil {
		out.SendLeaving(m.processes[to], w.header, w.payload, w.left, w.done)
		return
	}
	w.done(m.pass(to, w))
}

// Frees implements collective.Carrier. Within a process a message is copied while it is sent.
func (m *member) Frees(to, bytes int) bool {
	out := m.out[to]
	return out == nil || out.Frees(m.processes[to], bytes)
}

// pass copies a message to a member of this process.
func (m *member) pass(to int, w message) error {
	p := m.port
	p.mu.Lock()
	other := p.open[place{m.place.name, to}]
	p.mu.Unlock()
	if !m.use() {
		return ErrClosed
	}
	defer m.unuse()
	if other == nil || !other.use() {
		return nil // it has left, so the message is discarded
	}
	defer other.unuse()
	lens := make([]int, len(w.payload))
	for i, b := range w.payload {
		lens[i] = len(b)
	}
	parts, done, err := other.receiver.Take(m.place.rank, w.header, lens, nil)
	if err != nil {
		return nil // the group there has ended and reports it, as in another process
	}
	for i, b := range w.payload {
		copy(parts[i], b)
	}
	done(nil)
	return nil
}

func (m *member) use() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.busy++
	return true
}

func (m *member) unuse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy--; m.busy == 0 {
		m.idle.Broadcast()
	}
}

// Tell implements collective.Carrier.
func (m *member) Tell(to int, text []byte) {
	if m.processes[to] != m.port.self {
		m.say(kindNote, to, text)
		return
	}
	p := m.port
	p.mu.Lock()
	other := p.open[place{m.place.name, to}]
	p.mu.Unlock()
	if other != nil && other.use() {
		other.receiver.Told(m.place.rank, text)
		other.unuse()
	}
}

// gone tells the member that a process has failed.
func (m *member) gone(process lane.ID, cause error) {
	if !m.use() {
		return
	}
	defer m.unuse()
	if m.receiver == nil {
		return
	}
	for rank, other := range m.processes {
		if other == process {
			m.receiver.Gone(rank, cause)
		}
	}
}

// Close implements collective.Carrier.
func (m *member) Close() {
	m.mu.Lock()
	m.closed = true
	waiting := m.waiting
	m.waiting = make([][]message, len(m.processes))
	for m.busy > 0 {
		m.idle.Wait()
	}
	m.mu.Unlock()
	for _, list := range waiting {
		for _, w := range list {
			w.done(ErrClosed)
		}
	}
	for _, list := range [][]*lane.Group{m.out, m.in} {
		for _, g := range list {
			if g != nil {
				g.Close()
			}
		}
	}
	p := m.port
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[m.place] == m {
		delete(p.open, m.place)
	}
}
