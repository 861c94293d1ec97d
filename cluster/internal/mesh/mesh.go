package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/groups"
	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/cluster/internal/link"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/tensorops"
)

// LaneProtocol is the name of the lane's streams.
const LaneProtocol = "lane"

// ID is the incarnation of a process.
type ID = uuid.UUID

// Config configures a Mesh.
type Config struct {
	Self   ID
	Name   string // of this process
	System *actor.ActorSystem
	// Secure says that streams are encrypted and authenticated, so that the lane needs no checksums.
	// Streams is the number of lane streams to each peer.
	Secure  bool
	Streams int
	// Control handles messages for the process itself rather than an actor, one at a time for each
	// peer. It must not block for long.
	Control func(from ID, c *wire.Control)
	// Broken is called for a process to which a message could not be sent and never will be: the
	// attempt there can't continue.
	Broken func(id ID, err error)
	Awake  *clock.Awake // measures silences; nil: all time counts
	Logger *slog.Logger
	// Tap, if it is not nil, is called with each message that leaves, and each one that has come, before its actor or Control gets it. A test
	// stops the process there.
	Tap func(out bool, target string, message any)
}

// Mesh is a process's end of the connections to other processes.
type Mesh struct {
	cfg       Config
	transport transport.Transport
	link      *link.Node
	lane      *lane.Node

	refused  atomic.Int64 // messages that are invalid, or that their senders may not send
	refusals refusals

	mu        sync.Mutex
	peers     map[ID]*wire.Peer
	byAddress map[string]ID
	attempts  map[uuid.UUID]*attempt
}

// attempt is an attempt with actors in this process.
type attempt struct {
	codec  *actors.Codec
	at     map[string]ID // its processes, by their address in the run
	of     map[ID]string
	group  *lane.Group
	groups *groups.Port

	unpacking sync.RWMutex // write-locked to detach the attempt
	detached  bool

	mu   sync.Mutex
	sent map[string]map[string]account // by process and message; only with cluster.edge
}

// limitControlBytes bounds a control message. The transport's limit is a little higher, for the
// envelope.
const limitControlBytes = transport.LimitEnvelopeBytes - 4096

// New makes a mesh over a transport. It receives messages once Port.Use makes it the current mesh.
func New(cfg Config, t transport.Transport) *Mesh {
	m := &Mesh{cfg: cfg, transport: t, peers: make(map[ID]*wire.Peer), byAddress: make(map[string]ID), attempts: make(map[uuid.UUID]*attempt)}
	m.link = link.New(link.Config{Self: cfg.Self, Name: cfg.Name, Send: t.Send, Redial: m.redial, Deliver: m.deliver})
	m.lane = lane.New(lane.Config{Self: lane.ID(cfg.Self), Checksum: !cfg.Secure, Streams: cfg.Streams, Logger: cfg.Logger,
		Dial: func(ctx context.Context, address string) (net.Conn, error) { return t.Dial(ctx, address, LaneProtocol) }})
	return m
}

func (m *Mesh) envelope(from transport.Peer, e *wire.Envelope) {
	if err := m.receive(from, e); err != nil {
		m.cfg.Logger.Debug("dropped a message", "from", from.Name, "address", from.Address, "err", err)
	}
}

func (m *Mesh) receive(from transport.Peer, e *wire.Envelope) error {
	id, err := uuid.FromBytes(e.GetFrom())
	if err != nil {
		return fmt.Errorf("the sender's id has %d bytes, not 16", len(e.GetFrom()))
	}
	if err := m.identify(id, from.Name); err != nil {
		return err
	}
	m.mu.Lock()
	p := m.peers[id]
	m.mu.Unlock()
	if p.GetName() != e.GetSender() {
		return fmt.Errorf("process %v has the name %q, but the message names %.100q as the sender", id, p.GetName(), e.GetSender())
	}
	return m.link.Receive(e)
}

func (m *Mesh) accept(conn net.Conn, from transport.Peer) {
	m.lane.Accept(conn, func(id lane.ID) error { return m.identify(ID(id), from.Name) })
}

// identify checks that an incarnation is known and has the name in the certificate; "": there is no
// certificate.
func (m *Mesh) identify(id ID, name string) error {
	m.mu.Lock()
	p := m.peers[id]
	m.mu.Unlock()
	switch {
	case p == nil:
		return fmt.Errorf("unknown process %v", id)
	case name != "" && name != p.GetName():
		return fmt.Errorf("process %v has the name %q, but its certificate has the name %.100q", id, p.GetName(), name)
	}
	return nil
}

// SetPeer adds a process, or changes its addresses.
func (m *Mesh) SetPeer(p *wire.Peer) error {
	id, err := uuid.FromBytes(p.GetIncarnation())
	if err != nil {
		return fmt.Errorf("the id of %.100q's incarnation has %d bytes, not 16", p.GetName(), len(p.GetIncarnation()))
	}
	if id == m.cfg.Self {
		return nil
	}
	m.mu.Lock()
	m.peers[id], m.byAddress[p.GetAddress()] = p, id
	m.mu.Unlock()
	m.link.SetPeer(id, p.GetAddress())
	data := p.GetDataAddress()
	if data == "" {
		data = p.GetAddress()
	}
	m.lane.SetPeer(lane.ID(id), data)
	return nil
}

// nameAt returns the name of the process with an address, for control messages or tensors; "": none is known.
func (m *Mesh) nameAt(address string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[m.byAddress[address]]; p != nil {
		return p.GetName()
	}
	for _, p := range m.peers {
		if p.GetDataAddress() == address {
			return p.GetName()
		}
	}
	return ""
}

// Forget drops a process, and the messages that wait for it.
func (m *Mesh) Forget(id ID) {
	m.mu.Lock()
	if p := m.peers[id]; p != nil && m.byAddress[p.GetAddress()] == id {
		delete(m.byAddress, p.GetAddress())
	}
	name := m.peers[id].GetName()
	delete(m.peers, id)
	var ports []*groups.Port
	for _, a := range m.attempts {
		ports = append(ports, a.groups)
	}
	m.mu.Unlock()
	for _, port := range ports {
		port.Gone(lane.ID(id), fmt.Errorf("process %q (%v) has left", name, id))
	}
	m.link.Forget(id)
	m.lane.Forget(lane.ID(id))
}

// Unreachable lists the processes that have acknowledged neither messages nor tensors for at least
// within, and for how long. Call it regularly, at shorter intervals than within.
func (m *Mesh) Unreachable(within time.Duration) map[ID]time.Duration {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.peers))
	m.mu.Unlock()
	far := make(map[ID]time.Duration)
	for _, id := range all {
		if quiet := m.Quiet(id); quiet >= within {
			far[id] = quiet
		}
	}
	return far
}

// Quiet returns how long messages have waited for a process without any acknowledgment while this process was awake; 0:
// none waits. See Unreachable.
func (m *Mesh) Quiet(id ID) time.Duration {
	return m.cfg.Awake.Of(max(m.link.Stuck(id), m.lane.Stuck(lane.ID(id))))
}

// Traffic is the tensors' bytes to and from a process.
type Traffic struct {
	Peer           string // the process's name
	Sent, Received uint64 // that were acknowledged, and that have arrived whole
}

// Traffic counts the tensors' bytes to and from each known process, by name.
func (m *Mesh) Traffic() []Traffic {
	var all []Traffic
	for _, s := range m.lane.Stats().Peers {
		m.mu.Lock()
		p := m.peers[ID(s.ID)]
		m.mu.Unlock()
		if p != nil {
			all = append(all, Traffic{p.GetName(), s.BytesOut, s.BytesIn})
		}
	}
	slices.SortFunc(all, func(a, b Traffic) int { return strings.Compare(a.Peer, b.Peer) })
	return all
}

// Reconnected says that this process can reach others again. Waiting messages are resent at once, over
// new connections.
func (m *Mesh) Reconnected() { m.link.Reconnected() }

func (m *Mesh) returned(address string) {
	m.mu.Lock()
	id := m.byAddress[address]
	m.mu.Unlock()
	m.link.Redial(id)
}

// redial drops the connections to a process, which may be broken. The link's lock is held.
func (m *Mesh) redial(id ID, address string) {
	m.transport.Redial(address)
	m.lane.Redial(lane.ID(id))
}

// Control sends a message to a process itself, rather than to an actor.
func (m *Mesh) Control(to ID, c *wire.Control) error {
	return m.link.Post(to, &wire.Envelope{Body: &wire.Envelope_Control{Control: c}})
}

// Attach starts carrying an attempt's messages between this process and the given ones, which the run knows by their
// addresses. It accepts messages from these processes only and sends only to them, whatever addresses other processes have.
func (m *Mesh) Attach(c *actors.Codec, processes map[string]ID) {
	a := &attempt{codec: c, at: processes, of: make(map[ID]string)}
	for address, id := range processes {
		a.of[id] = address
	}
	supervisor := actors.SupervisorID(c.Attempt())
	a.group = m.lane.OpenPlaces(lane.ID(c.Attempt()), func(from lane.ID, header []byte, lens []int) (lane.Place, func(error), error) {
		return m.take(ID(from), a, supervisor, header, lens)
	})
	// no pings: the coordinator detects failed processes
	a.groups = groups.New(m.lane, lane.ID(m.cfg.Self), lane.ID(c.Attempt()),
		groups.Config{Name: m.name, Logger: m.cfg.Logger, Silence: -1, Member: func(id lane.ID) bool { return a.of[ID(id)] != "" }})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts[c.Attempt()] = a
}

// Groups returns this process's end of an attached attempt's groups; nil: the attempt is not attached.
func (m *Mesh) Groups(attempt uuid.UUID) *groups.Port {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.attempts[attempt]; a != nil {
		return a.groups
	}
	return nil
}

// name returns a process's name for errors.
func (m *Mesh) name(id lane.ID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%q (%v)", m.peers[ID(id)].GetName(), ID(id))
}

// Detach stops carrying an attempt's messages. When it returns, the mesh uses no memory of the attempt.
func (m *Mesh) Detach(id uuid.UUID) {
	m.mu.Lock()
	a := m.attempts[id]
	delete(m.attempts, id)
	m.mu.Unlock()
	if a != nil {
		a.unpacking.Lock() // the codec's data may go when Detach returns
		a.detached = true
		a.unpacking.Unlock()
		a.groups.Close()
		a.group.Close()
		m.tellSent(a)
	}
}

// take returns the memory for a message from the lane.
func (m *Mesh) take(from ID, a *attempt, supervisor string, header []byte, lens []int) (place lane.Place, done func(error), err error) {
	var e wire.Envelope
	if err := proto.Unmarshal(header, &e); err != nil {
		return place, nil, err
	}
	if !below(e.GetTarget(), supervisor) {
		return place, nil, fmt.Errorf("the target %.100q is not an actor of the attempt", e.GetTarget())
	}
	address, err := a.sender(from)
	if err != nil {
		m.refused.Add(1)
		return place, nil, err
	}
	taken, err := a.codec.Take(e.GetMessage(), lens, address)
	if err != nil {
		m.refused.Add(1)
		return place, nil, err
	}
	if place.Parts = taken.Parts; taken.Pieces != nil {
		place.Pieces = pieces{taken.Pieces}
	}
	return place, func(err error) {
		if err != nil || !m.pass(e.GetTarget(), taken.Message) {
			taken.Release()
		}
		if errors.Is(err, lane.ErrPieces) {
			m.cfg.Broken(from, err)
		}
	}, nil
}

// pieces adapts a tensor on a device to the lane.
type pieces struct{ *tensorops.Pieces }

// A piece's memory is at least as long as the lane's pieces.
const _ = uint(tensorops.PieceBytes - lane.LimitPiece)

// Lend implements lane.Pieces.
func (p pieces) Lend(cancel <-chan struct{}) (lane.Piece, error) {
	piece, err := p.Pieces.Lend(cancel)
	if piece == nil {
		return nil, err
	}
	return piece, nil
}

// deliver passes on a message from the link.
func (m *Mesh) deliver(from ID, e *wire.Envelope) {
	if c := e.GetControl(); c != nil {
		m.tap(false, "", c)
		m.cfg.Control(from, c)
		return
	}
	id, err := uuid.FromBytes(e.GetMessage().GetHeader().GetAttempt())
	m.mu.Lock()
	a := m.attempts[id]
	m.mu.Unlock()
	if err != nil || a == nil { // most likely it has ended
		m.cfg.Logger.Debug("dropped a message", "from", e.GetSender(), "attempt", id, "why", "the attempt is not attached")
		return
	}
	if !below(e.GetTarget(), actors.SupervisorID(id)) {
		m.Refuse(e.GetSender(), fmt.Errorf("the target %.100q is not an actor of the attempt", e.GetTarget()))
		return
	}
	message, err := a.unpack(from, e.GetMessage())
	if errors.Is(err, errDetached) {
		m.cfg.Logger.Debug("dropped a message", "from", e.GetSender(), "attempt", id, "why", err)
		return
	}
	if err != nil {
		m.Refuse(e.GetSender(), err)
		return
	}
	if !m.pass(e.GetTarget(), message) {
		m.cfg.Logger.Debug("dropped a message", "from", e.GetSender(), "target", e.GetTarget(), "why", "no such actor")
	}
}

// errDetached: the message is for an attempt that has just ended.
var errDetached = errors.New("the attempt has ended")

// errStranger: an attempt's message came from a process that is not in the attempt.
var errStranger = errors.New("its sender is not in the attempt")

// sender returns a process's address in the run.
func (a *attempt) sender(id ID) (string, error) {
	if address := a.of[id]; address != "" {
		return address, nil
	}
	return "", errStranger
}

// unpack unpacks a message of an attempt, unless the attempt has ended.
func (a *attempt) unpack(from ID, message *wire.Message) (any, error) {
	address, err := a.sender(from)
	if err != nil {
		return nil, err
	}
	a.unpacking.RLock()
	defer a.unpacking.RUnlock()
	if a.detached {
		return nil, errDetached
	}
	return a.codec.Unpack(message, address)
}

// below reports whether an id belongs to an attempt's supervisor or to an actor below it.
func below(id, supervisor string) bool {
	rest, ok := strings.CutPrefix(id, supervisor)
	return ok && (rest == "" || rest[0] == '/')
}

// pass sends a message to an actor in this process, and reports whether the actor exists.
func (m *Mesh) pass(id string, message any) bool {
	p, ok := m.cfg.System.ProcessRegistry.GetLocal(id)
	if ok {
		m.tap(false, id, message)
		p.SendUserMessage(m.cfg.System.NewLocalPID(id), message)
	}
	return ok
}

func (m *Mesh) tap(out bool, target string, message any) {
	if m.cfg.Tap != nil {
		m.cfg.Tap(out, target, message)
	}
}

// way is the protoactor process behind the PID of an actor in another process. PIDs keep it, and may
// outlive a mesh.
type way struct{ port *Port }

// SendUserMessage implements actor.Process. It drops messages for an attempt that is not attached to the
// current mesh.
func (w *way) SendUserMessage(pid *actor.PID, message any) {
	m := w.port.now.Load()
	if m == nil {
		return
	}
	_, message, _ = actor.UnwrapEnvelope(message)
	if err := m.send(pid, message); err != nil {
		m.cfg.Logger.Debug("can't send a message", "type", fmt.Sprintf("%T", message), "to", pid, "err", err)
	}
}

var errNobody = errors.New("no such actor")

func (m *Mesh) send(pid *actor.PID, message any) error {
	attempt, err := attemptOf(pid.GetId())
	if err != nil {
		return err
	}
	m.mu.Lock()
	a := m.attempts[attempt]
	m.mu.Unlock()
	if a == nil {
		return errNobody // the attempt's memory, with the message's tensors, is freed as a whole
	}
	m.tap(true, pid.GetId(), message)
	to := a.at[pid.GetAddress()]
	m.mu.Lock()
	name, known := m.peers[to].GetName(), m.peers[to] != nil
	m.mu.Unlock()
	if err := a.codec.Leave(message, pid.GetAddress()); err != nil {
		m.cfg.Logger.Error("refused to send a message", "err", err)
		m.cfg.Broken(to, err)
		return err
	}
	p, err := a.codec.Pack(message)
	if err != nil {
		return err
	}
	if a.codec.Edge() {
		a.count(name, message, &p)
	}
	if !known {
		p.Release()
		return errNobody
	}
	e := &wire.Envelope{Target: pid.GetId(), Body: &wire.Envelope_Message{Message: p.Message}}
	if size := proto.Size(e); !p.Bulk && size > limitControlBytes {
		err := fmt.Errorf("%T has %d bytes; the limit is %d", message, size, limitControlBytes)
		m.cfg.Broken(to, err)
		return err
	}
	if !p.Bulk {
		if err := m.link.Post(to, e); errors.Is(err, link.ErrFull) {
			m.cfg.Broken(to, err)
		}
		return nil
	}
	header, err := proto.Marshal(e)
	if err != nil {
		p.Release()
		return err
	}
	done := func(err error) {
		p.Release()
		if errors.Is(err, lane.ErrFull) || errors.Is(err, lane.ErrTooLarge) || errors.Is(err, lane.ErrPieces) {
			m.cfg.Broken(to, err)
		}
	}
	if p.Pieces != nil {
		a.group.SendPieces(lane.ID(to), header, pieces{p.Pieces}, done)
	} else {
		a.group.Send(lane.ID(to), header, p.Parts, done)
	}
	return nil
}

// attemptOf returns the attempt that an actor belongs to.
func attemptOf(id string) (uuid.UUID, error) {
	top, _, _ := strings.Cut(id, "/")
	text, ok := strings.CutPrefix(top, actors.SupervisorPrefix)
	if !ok {
		return uuid.Nil, fmt.Errorf("%.100q is not an actor of a run", id)
	}
	return uuid.Parse(text)
}

// SendSystemMessage implements actor.Process. It drops the message: watching and stopping don't cross
// processes, because beats detect failures.
func (w *way) SendSystemMessage(pid *actor.PID, message any) {
	if m := w.port.now.Load(); m != nil {
		m.cfg.Logger.Debug("dropped a system message", "type", fmt.Sprintf("%T", message), "to", pid)
	}
}

// Stop implements actor.Process.
func (w *way) Stop(pid *actor.PID) { w.SendSystemMessage(pid, "stop") }

// Close ends the mesh. Attempts must be detached.
func (m *Mesh) Close() {
	m.link.Close()
	m.lane.Close()
}
