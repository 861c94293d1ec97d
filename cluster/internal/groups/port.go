package groups

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/collective"
)

// Errors of Open.
var (
	ErrClosed = errors.New("groups: the port is closed")
	ErrName   = errors.New("groups: invalid group name")
	ErrRank   = errors.New("groups: invalid rank of a member")
	ErrTwice  = errors.New("groups: the member is already open")
)

// Config says how a port behaves.
type Config struct {
	// Name returns a process's name for errors; nil: its ID.
	Name func(lane.ID) string
	// Silence is how long a process may leave pings unanswered before it counts as failed; 0: DefaultSilence, negative: forever.
	Silence time.Duration
	// Member reports whether a process may have members in the groups; nil: all may.
	Member func(lane.ID) bool
	// Logger logs discarded messages; nil: no log.
	Logger *slog.Logger
}

// Port is a process's end of the groups of one scope.
type Port struct {
	cfg     Config
	node    *lane.Node
	self    lane.ID
	scope   lane.ID
	control *lane.Group
	stop    chan struct{}
	ended   chan struct{}

	mu       sync.Mutex
	closed   bool
	watching bool // watch is running
	open     map[place]*member
	locals   map[string]*local
	early    map[hello]lane.ID      // members elsewhere that are open, with the digests of their lists of members
	heard    map[lane.ID]*heartbeat // processes that a member waits for
}

// place names a member.
type place struct {
	name string
	rank int
}

// hello identifies a greeting of one member to another.
type hello struct {
	from, to place
	process  lane.ID
}

// local is a group with all members in this process, until the last of them is opened.
type local struct {
	members []*collective.Group
	opened  []bool
}

// heartbeat is when a process was last known to be alive.
type heartbeat struct {
	at      time.Time
	pending int    // unacknowledged pings
	moved   uint64 // sum of the bytes and messages to and from it until then
}

// New makes a port. self is the ID of the node. scope is an ID that no other port or lane group of the node uses.
func New(node *lane.Node, self, scope lane.ID, cfg Config) *Port {
	if cfg.Name == nil {
		cfg.Name = lane.ID.String
	}
	if cfg.Silence == 0 {
		cfg.Silence = DefaultSilence
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Port{cfg: cfg, node: node, self: self, scope: scope, stop: make(chan struct{}), ended: make(chan struct{}),
		open: make(map[place]*member), locals: make(map[string]*local), early: make(map[hello]lane.ID), heard: make(map[lane.ID]*heartbeat)}
	p.control = node.Open(p.id("", 0, 0), func(from lane.ID, header []byte, _ []int) ([][]byte, func(error), error) {
		if cfg.Member != nil && !cfg.Member(from) {
			return nil, nil, fmt.Errorf("%w: process %s has no member in the groups", errNote, cfg.Name(from))
		}
		p.receive(from, header)
		return nil, func(error) {}, nil
	})
	return p
}

// id returns the lane group for the messages of one member to another; name "": for the control messages.
func (p *Port) id(name string, from, to int) (id lane.ID) {
	b := binary.LittleEndian.AppendUint32(p.scope[:len(p.scope):len(p.scope)], uint32(from))
	b = binary.LittleEndian.AppendUint32(b, uint32(to))
	sum := sha256.Sum256(append(b, name...))
	copy(id[:], sum[:])
	return id
}

func digest(processes []lane.ID) (id lane.ID) {
	h := sha256.New()
	for i := range processes {
		h.Write(processes[i][:])
	}
	copy(id[:], h.Sum(nil))
	return id
}

// Open opens this process's member of a group, with the given rank. processes has the process of each rank; a process may
// have several ranks.
func (p *Port) Open(name string, processes []lane.ID, rank int) (*collective.Group, error) {
	if name == "" || len(name) > LimitNameBytes {
		return nil, fmt.Errorf("%w: it has %d bytes; want 1 to %d", ErrName, len(name), LimitNameBytes)
	}
	n := len(processes)
	if rank < 0 || rank >= n || n > collective.LimitMembers || processes[rank] != p.self {
		return nil, fmt.Errorf("%w: group %s has %d members, and rank %d is not in this process", ErrRank, name, n, rank)
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if !slices.ContainsFunc(processes, func(id lane.ID) bool { return id != p.self }) {
		defer p.mu.Unlock()
		return p.openLocal(name, n, rank)
	}
	at := place{name, rank}
	if p.open[at] != nil {
		p.mu.Unlock()
		return nil, fmt.Errorf("%w: rank %d of group %s", ErrTwice, rank, name)
	}
	m := newMember(p, at, slices.Clone(processes))
	p.open[at] = m
	if !p.watching {
		p.watching = true
		go p.watch() // ends with Close
	}
	p.mu.Unlock()
	g := collective.Over(name, rank, n, m)
	m.setGroup(g)
	return g, nil
}

func (p *Port) openLocal(name string, n, rank int) (*collective.Group, error) {
	l := p.locals[name]
	if l == nil {
		l = &local{members: collective.Local(name, n), opened: make([]bool, n)}
		p.locals[name] = l
	}
	if len(l.opened) != n || l.opened[rank] {
		return nil, fmt.Errorf("%w: rank %d of group %s with %d members", ErrTwice, rank, name, n)
	}
	l.opened[rank] = true
	if !slices.Contains(l.opened, false) {
		delete(p.locals, name)
	}
	return l.members[rank], nil
}

// Gone tells the port that a process has failed. It ends the groups with members in that process.
func (p *Port) Gone(process lane.ID, cause error) {
	for _, m := range p.members() {
		m.gone(process, cause)
	}
}

func (p *Port) members() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*member, 0, len(p.open))
	for _, m := range p.open {
		list = append(list, m)
	}
	return list
}

// Waiting lists what the members here wait for, the longest wait first.
func (p *Port) Waiting() (list []collective.Status) {
	for _, m := range p.members() {
		if s, ok := m.status(); ok {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b collective.Status) int { return a.Since.Compare(b.Since) })
	return list
}

// Close ends the port. Members that haven't left their groups leave them now.
func (p *Port) Close() {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	watching := p.watching
	var here []*collective.Group
	for _, l := range p.locals {
		here = append(here, l.members...)
	}
	p.mu.Unlock()
	for _, m := range p.members() {
		if g := m.end(); g != nil {
			here = append(here, g)
		}
	}
	for _, g := range here {
		g.Leave(ErrClosed)
	}
	if !again {
		close(p.stop)
	}
	if watching {
		<-p.ended
	}
	p.control.Close()
}

// receive takes a control message.
func (p *Port) receive(from lane.ID, header []byte) {
	n, err := decodeNote(header)
	if err != nil {
		p.cfg.Logger.Warn("dropped a message", "from", p.cfg.Name(from), "err", err)
		return
	}
	if n.kind == kindPing {
		return
	}
	p.mu.Lock()
	m := p.open[place{n.name, n.to}]
	if m == nil && (n.kind == kindHello || n.kind == kindHere) && !p.closed {
		if len(p.early) >= LimitEarly {
			p.cfg.Logger.Warn("too many members opened elsewhere before those here", "group", n.name, "limit", LimitEarly)
		} else {
			p.early[hello{place{n.name, n.from}, place{n.name, n.to}, from}] = n.members
		}
	}
	p.mu.Unlock()
	if m != nil {
		m.note(from, n)
	}
}

// tell sends a control message.
func (p *Port) tell(to lane.ID, n note, done func(error)) {
	p.control.Send(to, n.encode(), nil, done)
}

// watch repeats that members are open until there is an answer, and pings the processes that members wait for.
func (p *Port) watch() {
	defer close(p.ended)
	t := time.NewTicker(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-p.stop:
			return
		case now := <-t.C:
			awaited := make(map[lane.ID]bool)
			for _, m := range p.members() {
				m.greet(false)
				if s, ok := m.status(); ok && now.Sub(s.Since) > tick {
					for _, process := range m.processes {
						awaited[process] = process != p.self
					}
				}
			}
			if own := now.Sub(last) - tick; own > tick { // this process itself was suspended
				p.postpone(own)
			}
			last = now
			p.ask(awaited, now)
		}
	}
}

// ask pings processes, and counts those as failed that haven't answered for Silence.
func (p *Port) ask(awaited map[lane.ID]bool, now time.Time) {
	var gone []lane.ID
	moved := p.moved(awaited)
	p.mu.Lock()
	for process := range p.heard {
		if !awaited[process] && p.heard[process].pending == 0 {
			delete(p.heard, process)
		}
	}
	var ping []lane.ID
	for process, other := range awaited {
		if !other {
			continue
		}
		h := p.heard[process]
		switch {
		case h == nil:
			h = &heartbeat{at: now, moved: moved[process]}
			p.heard[process] = h
		case h.pending == 0 || h.moved != moved[process]: // a ping waits for the messages sent before it
			h.at, h.moved = now, moved[process]
		case p.cfg.Silence > 0 && now.Sub(h.at) > p.cfg.Silence:
			gone = append(gone, process)
		}
		if h.pending < LimitPings {
			h.pending++
			ping = append(ping, process)
		}
	}
	p.mu.Unlock()
	for _, process := range ping {
		p.tell(process, note{kind: kindPing}, func(err error) { p.answered(process, err) })
	}
	for _, process := range gone {
		p.Gone(process, fmt.Errorf("process %s has not answered for %v", p.cfg.Name(process), p.cfg.Silence))
	}
}

// postpone gives all processes more time to answer.
func (p *Port) postpone(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.heard {
		h.at = h.at.Add(by)
	}
}

// moved returns the sum of bytes and messages to and from each process, if a member waits for one.
func (p *Port) moved(awaited map[lane.ID]bool) map[lane.ID]uint64 {
	if len(awaited) == 0 {
		return nil
	}
	sums := make(map[lane.ID]uint64)
	for _, s := range p.node.Stats().Peers {
		sums[s.ID] = s.BytesIn + s.MessagesIn + s.BytesOut + s.MessagesOut
	}
	return sums
}

func (p *Port) answered(process lane.ID, err error) {
	p.mu.Lock()
	h := p.heard[process]
	if h != nil {
		h.pending--
		if err == nil {
			h.at = time.Now()
		}
	}
	p.mu.Unlock()
	if errors.Is(err, lane.ErrGone) {
		p.Gone(process, fmt.Errorf("process %s: %w", p.cfg.Name(process), err))
	}
}
