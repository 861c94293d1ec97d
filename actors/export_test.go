package actors

import (
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/tensorops"
)

// Tell sends a message to one of a run's actors.
func (r *Run) Tell(name string, m any) {
	r.system.Root.Send(r.system.NewLocalPID(r.supervisor.Id+"/"+name), m)
}

// TellSupervisor sends a message to a run's supervisor.
func (r *Run) TellSupervisor(m any) { r.system.Root.Send(r.supervisor, m) }

// PanicMessage makes the actor of a name panic.
func PanicMessage(name string) any {
	return map[string]any{
		"supervisor":   (*Failed)(nil),
		schedulerName:  (*StageReady)(nil),
		loaderName:     (*DataRequest)(nil),
		checkpointName: (*BeginSave)(nil),
		metricsName:    (*writeStep)(nil),
		stageName(1):   (*Transfer)(nil),
	}[name]
}

// settled is answered by protoactor itself, behind what came before.
type settled struct{}

func (settled) GetAutoResponse(actor.Context) any { return settled{} }

// held is an actor's turn until something is closed.
type held struct{ until <-chan struct{} }

func (m held) GetAutoResponse(actor.Context) any {
	<-m.until
	return m
}

// Hold keeps one of a run's actors from its next message until something is closed.
func (r *Run) Hold(name string, until <-chan struct{}) { r.Tell(name, held{until}) }

// Settle waits until the scheduler has taken all requests that were made.
func (r *Run) Settle() error {
	for _, pid := range []*actor.PID{r.supervisor, r.system.NewLocalPID(r.supervisor.Id + "/" + schedulerName)} { // as requests go
		if _, err := r.system.Root.RequestFuture(pid, settled{}, time.Minute).Result(); err != nil {
			return err
		}
	}
	return nil
}

// NewTrackedBatch makes a batch, and says whether it was released.
func NewTrackedBatch() (b *Batch, released func() bool) {
	p := &batchPool{}
	return p.get(1, 1, 1), func() bool {
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

// RunStagesOnOwn makes stages receive on goroutines of their mailboxes' own.
func (s *Spec) RunStagesOnOwn() { s.dispatcher = actor.NewDefaultDispatcher(throughput) }
