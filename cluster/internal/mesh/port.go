package mesh

import (
	"net"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Port is where a process's mesh meets its transport and its actor system. Those last as long as
// the process; a worker that joins again has a new incarnation, and a mesh of its own for it.
// What comes is the present mesh's, and dropped while there is none.
type Port struct{ now atomic.Pointer[Mesh] }

// Envelope takes a control message: it is the transport's handler.
func (p *Port) Envelope(from transport.Peer, e *wire.Envelope) {
	if m := p.now.Load(); m != nil { // else it will be sent again
		m.envelope(from, e)
	}
}

// Accept takes a stream of the lane: it is the transport's handler.
func (p *Port) Accept(conn net.Conn, from transport.Peer) {
	if m := p.now.Load(); m != nil {
		m.accept(conn, from)
		return
	}
	_ = conn.Close() // it will be dialled again
}

// Returned hears that a process may be back: it is the transport's handler.
func (p *Port) Returned(address string) {
	if m := p.now.Load(); m != nil {
		m.returned(address)
	}
}

// NameAt is the name of the process that the present mesh knows at an address; "": it knows none. What is dialled there has
// to show a certificate of that name.
func (p *Port) NameAt(address string) string {
	if m := p.now.Load(); m != nil {
		return m.nameAt(address)
	}
	return ""
}

// Resolve makes messages of a system's actors to other processes go through the port. It may be
// called once, when the system has its transport, and before an actor sends.
func (p *Port) Resolve(system *actor.ActorSystem) {
	system.ProcessRegistry.RegisterAddressResolver(func(*actor.PID) (actor.Process, bool) { return &way{p}, true })
}

// Use makes m the present mesh; nil: there is none.
func (p *Port) Use(m *Mesh) { p.now.Store(m) }
