package mesh

import (
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

// BulkOut counts the messages that have gone over the lane.
func (m *Mesh) BulkOut() (messages uint64) {
	for _, p := range m.lane.Stats().Peers {
		messages += p.MessagesOut
	}
	return messages
}
