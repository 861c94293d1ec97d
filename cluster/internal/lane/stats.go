package lane

import "time"

// PeerStats counts the traffic to and from a peer.
type PeerStats struct {
	ID      ID
	Address string // "": not known

	MessagesOut, BytesOut uint64 // acknowledged
	MessagesIn, BytesIn   uint64 // complete
	// Resent counts messages with a resent piece.
	Resent uint64
	// Queued and QueuedBytes count the unacknowledged messages and their bytes.
	Queued      int
	QueuedBytes int64
	// Streams counts the open streams to the peer, and Shared those whose payload goes through shared memory.
	Streams, Shared int
	// Stuck is how long messages have waited for the peer without a sign that its system can be
	// reached: no message was acknowledged and, on systems that report it, no byte. 0: no message
	// waits. Read it regularly, at shorter intervals than the time that matters to the caller.
	Stuck time.Duration
}

// Stats counts the traffic of a node, by peer.
type Stats struct{ Peers []PeerStats }

// Stats counts the node's traffic since its start, for the peers that aren't forgotten.
func (n *Node) Stats() Stats {
	n.mu.Lock()
	peers := make(map[ID]*PeerStats)
	peer := func(id ID) *PeerStats {
		p := peers[id]
		if p == nil {
			p = &PeerStats{ID: id}
			peers[id] = p
		}
		return p
	}
	outs := make([]*out, 0, len(n.outs))
	for _, o := range n.outs {
		outs = append(outs, o)
	}
	for id, i := range n.ins {
		p := peer(id)
		p.MessagesIn, p.BytesIn = i.messages.Load(), i.bytes.Load()
	}
	n.mu.Unlock()
	for _, o := range outs {
		p := peer(o.peer)
		o.mu.Lock()
		p.Address = o.address
		p.MessagesOut, p.BytesOut, p.Resent = o.stats.messages, o.stats.bytes, o.stats.resent
		p.Queued, p.QueuedBytes = o.stats.queued, o.stats.queuedBytes
		p.Stuck = o.stuck()
		for _, s := range o.streams {
			if s != nil && s.conn != nil && s.ready {
				p.Streams++
				if s.shared {
					p.Shared++
				}
			}
		}
		o.mu.Unlock()
	}
	var all Stats
	for _, p := range peers {
		all.Peers = append(all.Peers, *p)
	}
	return all
}

// Stuck returns PeerStats.Stuck of one peer.
func (n *Node) Stuck(id ID) time.Duration {
	n.mu.Lock()
	o := n.outs[id]
	n.mu.Unlock()
	if o == nil {
		return 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stuck()
}
