package mesh

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Post sends an envelope as the link does, whatever is in it.
func (m *Mesh) Post(to ID, e *wire.Envelope) error { return m.link.Post(to, e) }

// PostBulk sends a message over the lane, whatever is in it.
func (m *Mesh) PostBulk(attempt uuid.UUID, to ID, header []byte, parts [][]byte, done func(error)) {
	m.mu.Lock()
	g := m.attempts[attempt].group
	m.mu.Unlock()
	g.Send(lane.ID(to), header, parts, done)
}

// Resent counts what link and lane have sent again to a process.
func (m *Mesh) Resent(to ID) (control int64, bulk uint64) {
	_, control = m.link.Waiting(to)
	for _, p := range m.lane.Stats().Peers {
		if p.ID == lane.ID(to) {
			bulk = p.Resent
		}
	}
	return control, bulk
}

// BulkOut counts the messages that have gone over the lane, and their bytes.
func (m *Mesh) BulkOut() (messages, bytes uint64) {
	for _, p := range m.lane.Stats().Peers {
		messages += p.MessagesOut
		bytes += p.BytesOut
	}
	return messages, bytes
}

// Debug shows link and lane state.
func (m *Mesh) Debug() string {
	var b strings.Builder
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range m.peers {
		w, r := m.link.Waiting(id)
		fmt.Fprintf(&b, "  to %s: waiting %d resent %d", p.GetName(), w, r)
		for _, l := range m.lane.Stats().Peers {
			if l.ID == lane.ID(id) {
				fmt.Fprintf(&b, " lane %+v", l)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
