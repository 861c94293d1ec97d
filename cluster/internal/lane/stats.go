package lane

import "time"

// PeerStats is what went to a peer and came from it.
type PeerStats struct {
	ID      ID
	Address string // empty: not known

	MessagesOut, BytesOut uint64 // acknowledged
	MessagesIn, BytesIn   uint64 // complete
	// Resent counts messages of which a piece was sent again.
	Resent uint64
	// Queued and QueuedBytes are messages that aren't acknowledged.
	Queued      int
	QueuedBytes int64
	// Streams counts the open streams to the peer, Shared those of them whose payload goes through shared memory.
	Streams, Shared int
	// Stuck is for how long messages have waited for the peer without a sign that its system is
	// reached: neither one of them was acknowledged, nor, where the system says so, a byte of
	// them. 0: none waits. It is to be asked for now and then, more often than it matters.
	Stuck time.Duration
}

// Stats is what went over a node, by peer.
type Stats struct{ Peers []PeerStats }

// Stats says what went over the node since it began, for the peers that aren't forgotten.
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

// Stuck is PeerStats.Stuck of one peer.
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
