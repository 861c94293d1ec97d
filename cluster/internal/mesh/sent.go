package mesh

import (
	"maps"
	"slices"

	"github.com/troupe-ml/troupe/actors"
)

// account counts messages sent to another process, and the bytes of their tensors.
type account struct{ messages, bytes int64 }

// count counts a message to a process.
func (a *attempt) count(to string, message any, p *actors.Packed) {
	n := int64(0)
	for _, part := range p.Parts {
		n += int64(len(part))
	}
	if p.Pieces != nil {
		n += int64(p.Pieces.Len())
	}
	name := actors.Name(message)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent == nil {
		a.sent = make(map[string]map[string]account)
	}
	if a.sent[to] == nil {
		a.sent[to] = make(map[string]account)
	}
	of := a.sent[to][name]
	a.sent[to][name] = account{of.messages + 1, of.bytes + n}
}

// tellSent logs what this process has sent to each other process in an attempt with cluster.edge.
func (m *Mesh) tellSent(a *attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, to := range slices.Sorted(maps.Keys(a.sent)) {
		for _, name := range slices.Sorted(maps.Keys(a.sent[to])) {
			of := a.sent[to][name]
			m.cfg.Logger.Info("sent in this attempt", "to", to, "what", name, "messages", of.messages, "bytes", of.bytes)
		}
	}
}
