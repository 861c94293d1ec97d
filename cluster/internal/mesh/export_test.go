package mesh

import (
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Post sends any envelope as the link does.
func (m *Mesh) Post(to ID, e *wire.Envelope) error { return m.link.Post(to, e) }

// PostBulk sends any message over the lane.
func (m *Mesh) PostBulk(attempt uuid.UUID, to ID, header []byte, parts [][]byte, done func(error)) {
	m.mu.Lock()
	g := m.attempts[attempt].group
	m.mu.Unlock()
	g.Send(lane.ID(to), header, parts, done)
}

// Resent counts the messages that link and lane have sent to a process again.
func (m *Mesh) Resent(to ID) (control int64, bulk uint64) {
	_, control = m.link.Waiting(to)
	for _, p := range m.lane.Stats().Peers {
		if p.ID == lane.ID(to) {
			bulk = p.Resent
		}
	}
	return control, bulk
}

// BulkOut counts the messages that the lane has sent.
func (m *Mesh) BulkOut() (messages uint64) {
	for _, p := range m.lane.Stats().Peers {
		messages += p.MessagesOut
	}
	return messages
}
