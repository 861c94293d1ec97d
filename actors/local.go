package actors

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// local is what a process holds of a run beside its actors: the streams and the memory of
// the stages that are in it.
type local struct {
	spec Spec
	id   runID
	log  *slog.Logger
	// shown is what those who are no actors of the run may read of its spec at any time; nil: it has ended.
	shown    atomic.Pointer[Spec]
	apart    bool // some ranks are in other processes
	system   *actor.ActorSystem
	shutdown func() // of a system of the run's own, else nil

	streams []tensorops.Stream // by rank; nil: in another process
	// arrivals have the memory of a rank's device for what comes to it from other processes in
	// pieces; nil: it comes by way of the host's.
	arrivals []tensorops.Arena
	cells    []*statusCell
	byName   map[string]*statusCell
	moves    atomic.Int64
	recorder *recorder
	underWay atomic.Pointer[underWay] // nil: no order has begun, or this process has no scheduler
	memory   *tensorops.Memory        // for what crosses from one device to another
	host     tensorops.Arena          // of it
	edges    []*edgeMemory            // by rank; nil: in another process
	copies   *tensorops.Memory        // for what checkpoints are written from

	// hurry is closed when the run is asked to stop, over when it ends without its last steps' lines: with an error. By
	// endSoon and endNow.
	hurry, over     chan struct{}
	endSoon, endNow func()

	builders sync.WaitGroup // of stages
	computes []Compute      // by rank; nil: there is none here
}

func newLocal(spec Spec) (*local, error) {
	attempt := spec.Attempt
	if attempt == uuid.Nil {
		var err error
		if attempt, err = uuid.NewV7(); err != nil {
			return nil, err
		}
	}
	l := &local{spec: spec, apart: spec.apart(), id: runID{spec.Run, attempt}, byName: make(map[string]*statusCell),
		streams: make([]tensorops.Stream, spec.ranks()), arrivals: make([]tensorops.Arena, spec.ranks()), computes: make([]Compute, spec.ranks()),
		memory: tensorops.NewHostMemory(0), copies: tensorops.NewHostMemory(0), recorder: newRecorder()}
	l.host = l.memory.NewArena("what crosses")
	l.hurry, l.over = make(chan struct{}), make(chan struct{})
	l.endSoon, l.endNow = sync.OnceFunc(func() { close(l.hurry) }), sync.OnceFunc(func() { close(l.over) })
	l.edges = make([]*edgeMemory, spec.ranks())
	for rank := range l.streams {
		if spec.host(rank) == "" {
			l.streams[rank] = spec.device(rank).NewStream(spec.stageName(rank))
			if spec.apart() {
				if a, ok := tensorops.Beside(l.streams[rank].Arena(), spec.stageName(rank)+" (what comes in)"); ok {
					l.arrivals[rank] = a
				}
			}
		}
	}
	for rank, s := range l.streams {
		if s != nil {
			l.edges[rank] = l.newEdgeMemory(rank)
		}
	}
	if l.log = spec.Logger; l.log == nil {
		l.log = slog.New(slog.DiscardHandler) // events and errors tell what matters
	}
	l.log = l.log.With("run", spec.Run, "attempt", attempt)
	l.shown.Store(&spec)
	return l, nil
}

// addCell makes an actor's cell.
func (l *local) addCell(name string, rank int) {
	c := newStatusCell(name, rank, &l.moves)
	l.cells, l.byName[name] = append(l.cells, c), c
}

// part is what an actor of the run has in common with the others.
func (l *local) part(name string) part {
	return part{spec: &l.spec, cell: l.byName[name], runID: l.id}
}

// newStage makes the actor of a rank that is in this process.
func (l *local) newStage(rank int) *stageActor {
	return &stageActor{part: l.part(l.spec.stageName(rank)), local: l, rank: rank, at: l.spec.place(rank), stream: l.streams[rank],
		edges: edges{memory: l.edges[rank]}}
}

// close gives back what the process holds, once no actor of the run is left in it. However
// that came about, all that stages and messages hold of the streams' memory goes back with
// it, and what still lies in a mailbox has nothing left to give back.
func (l *local) close() {
	if l.spec.Detach != nil {
		l.spec.Detach()
	}
	for _, s := range l.streams {
		if s != nil {
			s.Close()
		}
	}
	l.builders.Wait()
	for rank, c := range l.computes {
		if c == nil {
			continue
		}
		if err := c.Close(); err != nil {
			l.log.Error("close a stage", "rank", rank, "error", err)
		}
	}
	for rank, s := range l.streams { // now that nothing uses the memory of another
		if s == nil {
			continue
		}
		s.Arena().Close()
		if a := l.arrivals[rank]; a != nil {
			a.Close()
		}
		l.edges[rank].close()
	}
	if l.shutdown != nil {
		l.shutdown()
	}
	l.memory.Close()
	l.copies.Close()
	l.spec = Spec{} // whoever keeps the run keeps no data by it
	l.shown.Store(nil)
}

// status reads every cell.
func (l *local) status() []event.Snapshot {
	var all []event.Snapshot
	for _, c := range l.cells {
		all = append(all, l.inGroup(c.Load()))
	}
	return all
}

// inGroup adds to what a stage does the collective that its device waits in. It is asked for when
// somebody looks: no actor knows it.
func (l *local) inGroup(s event.Snapshot) event.Snapshot {
	spec := l.shown.Load()
	if spec == nil || spec.GroupStatus == nil || s.Rank < 0 || spec.host(s.Rank) != "" || s.Wait != event.WaitNothing {
		return s
	}
	if w, waits := spec.GroupStatus(s.Rank); waits {
		s.Wait, s.Collective, s.From, s.Since = event.WaitGroup, w.What, spec.stageName(w.From), w.Since
	}
	return s
}
