package scheduler

// RendezvousSafe reports whether a table could also be run without any buffer, where a
// send waits until its receiver takes it: each rank receives an action's input, computes,
// and sends its output, one after the other. Runs don't need it, since a mailbox takes
// what comes; systems of matched sends and receives do, and pair them for want of it. The
// table is one that Check passes.
func RendezvousSafe(t *Table) bool {
	m := rendezvousSim{table: t, at: make([]rendezvous, t.NumRanks())}
	ready := make([]int, 0, t.NumRanks())
	for r := range m.at {
		m.at[r] = rendezvous{rank: r}
		m.seek(r)
		ready = append(ready, r)
	}
	for len(ready) > 0 {
		r := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for m.at[r].peer >= 0 {
			other := m.at[r].peer
			if m.at[other].peer != r || !m.at[r].meets(m.at[other]) {
				break
			}
			m.pass(r)
			m.pass(other)
			ready = append(ready, other)
		}
	}
	for r, e := range m.at {
		if e.position < len(t.Ranks[r]) {
			return false
		}
	}
	return true
}

// rendezvousSim follows the ranks from message to message.
type rendezvousSim struct {
	table *Table
	at    []rendezvous // by rank: the message that it is at
}

// rendezvous is a rank's place: an action's input or output that goes between ranks.
type rendezvous struct {
	rank     int
	position int // of the action, or of the first of a pair
	step     int // messages of the action or pair: inputs first, then outputs
	peer     int // the other rank, −1: the rank has ended
	kind     EdgeKind
	sends    bool
	chunk    int // that the message goes to
	mb       int32
}

// meets reports whether two ranks are at the two ends of one message.
func (e rendezvous) meets(o rendezvous) bool {
	return e.sends != o.sends && e.kind == o.kind && e.chunk == o.chunk && e.mb == o.mb
}

// pass takes a rank over the message that it is at.
func (m *rendezvousSim) pass(rank int) {
	m.at[rank].step++
	m.seek(rank)
}

// seek finds a rank's next message, from its place on.
func (m *rendezvousSim) seek(rank int) {
	e := &m.at[rank]
	row := m.table.Ranks[rank]
	for ; e.position < len(row); e.position, e.step = e.position+Width(row, e.position), 0 {
		together := row[e.position : e.position+Width(row, e.position)]
		for ; e.step < 2*len(together); e.step++ {
			if m.message(e, together[e.step%len(together)], e.step >= len(together)) {
				return
			}
		}
	}
	e.peer = -1
}

// message describes an action's input or output, and reports whether another rank has
// its other end.
func (m *rendezvousSim) message(e *rendezvous, a Action, sends bool) bool {
	kind, ok := a.Type.edge()
	if !ok {
		return false
	}
	other, ok := kind.from(int(a.Chunk), m.table.NumChunks)
	to := int(a.Chunk)
	if sends {
		other, ok = kind.to(int(a.Chunk), m.table.NumChunks)
		to = other
	}
	if !ok || m.table.RankOf(other) == e.rank {
		return false
	}
	e.peer, e.kind, e.sends, e.chunk, e.mb = m.table.RankOf(other), kind, sends, to, a.Microbatch
	return true
}
