package mesh

import (
	"net"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Port connects a process's transport and actor system, which last as long as the process, to its
// current mesh. A worker that joins again has a new incarnation and a new mesh. Messages go to the
// current mesh, and are dropped while there is none.
type Port struct{ now atomic.Pointer[Mesh] }

// Envelope handles a control message from the transport.
func (p *Port) Envelope(from transport.Peer, e *wire.Envelope) {
	if m := p.now.Load(); m != nil { // otherwise the sender resends it
		m.envelope(from, e)
	}
}

// Accept serves a lane stream from the transport.
func (p *Port) Accept(conn net.Conn, from transport.Peer) {
	if m := p.now.Load(); m != nil {
		m.accept(conn, from)
		return
	}
	_ = conn.Close() // the peer redials
}

// Returned handles the transport's notice that a process may be reachable again.
func (p *Port) Returned(address string) {
	if m := p.now.Load(); m != nil {
		m.returned(address)
	}
}

// NameAt returns the name of the process that the current mesh knows at an address; "": none. A process that is dialed
// there must show a certificate with that name.
func (p *Port) NameAt(address string) string {
	if m := p.now.Load(); m != nil {
		return m.nameAt(address)
	}
	return ""
}

// Resolve makes a system's actors send messages for other processes through the port. Call it once, when
// the system has its transport and before an actor sends.
func (p *Port) Resolve(system *actor.ActorSystem) {
	system.ProcessRegistry.RegisterAddressResolver(func(*actor.PID) (actor.Process, bool) { return &way{p}, true })
}

// Use makes m the current mesh; nil: there is none.
func (p *Port) Use(m *Mesh) { p.now.Store(m) }
