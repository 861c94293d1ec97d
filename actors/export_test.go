package actors

import (
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// Tell sends a message to one of a run's actors.
func (r *Run) Tell(name string, m any) {
	r.system.Root.Send(r.system.NewLocalPID(r.supervisor.Id+"/"+name), m)
}

// Settle waits until the scheduler has taken all requests that were made, and
// returns what it does.
func (r *Run) Settle() (Snapshot, error) {
	s, err := r.system.Root.RequestFuture(r.supervisor, StatusRequest{}, 10*time.Second).Result()
	if err != nil {
		return Snapshot{}, err
	}
	return s.(Snapshot), nil
}

// NewTrackedBatch makes a batch, and says whether it was released.
func NewTrackedBatch() (b *Batch, released func() bool) {
	p := &batchPool{}
	return p.get(1), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.free) == 1
	}
}

// HostTransfers tells how much of the run's own memory is and was in use, through which
// tensors cross from one device to another.
func (r *Run) HostTransfers() tensorops.MemoryStats { return r.memory.Stats() }

// Copies tells the same of what checkpoints are written from.
func (r *Run) Copies() tensorops.MemoryStats { return r.copies.Stats() }
