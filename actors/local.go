package actors

import (
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// local is what a process holds of a run besides its actors: the streams and the memory of the
// stages in the process.
type local struct {
	spec Spec
	id   runID
	log  *slog.Logger
	// shown is the spec for readers that are not actors of the run; nil: the run has ended.
	shown    atomic.Pointer[Spec]
	apart    bool // some ranks are in other processes
	system   *actor.ActorSystem
	shutdown func() // for the run's own actor system, otherwise nil

	streams []tensorops.Stream // by rank; nil: in another process
	// arrivals has, by rank, memory of the rank's device for tensors that arrive in pieces from
	// other processes; nil: they come through the host's memory.
	arrivals []tensorops.Arena
	cells    []*statusCell
	byName   map[string]*statusCell
	moves    atomic.Int64
	recorder *recorder
	underWay atomic.Pointer[underWay] // nil: no order has started, or this process has no scheduler
	memory   *tensorops.Memory        // for transfers from one device to another
	spare    *tensorops.Spare         // the source of memory: it keeps what the last attempt, and reads of state, have used
	host     tensorops.Arena          // arena of memory
	// trim frees, once, what memory keeps of the state that ranks read from each other before the first order. In a renewed attempt spare
	// keeps it until the second step: gradients for shadows have the same sizes.
	trim     func()
	endSpare func()            // frees, once, what spare keeps
	reader   *WeightReader     // of what builds the stages here; nil: there is none, or nothing that it reads is in other processes
	edges    []*edgeMemory     // by rank; nil: in another process
	copies   *tensorops.Memory // for the copies from which checkpoints are written

	// hurry is closed when the run is asked to stop, over when it ends with an error and without
	// the lines of its last steps. endSoon and endNow close them.
	hurry, over     chan struct{}
	endSoon, endNow func()

	builders sync.WaitGroup        // the goroutines that build stages
	computes []Compute             // by rank; nil: not in this process
	shadows  []*shadow             // by rank; nil: not held in this process
	rescued  []*shadow             // by rank, of those that save from their shadow; nil: others
	retired  [][]*shadow           // by the rank that has held them in the last attempt; closed with the first order
	ends     []*stageEnd           // by rank, of the stages that have halted; nil: not halted, or never built
	kept     []*Kept               // what outlives the attempt, when it has ended
	keeps    atomic.Bool           // the stages outlive the attempt
	renewing atomic.Bool           // it continues another attempt, and some stages have no state yet
	ready    atomic.Bool           // all stages have their weights
	newest   atomic.Pointer[Saved] // the last checkpoint that was written; nil: none
	missing  atomic.Pointer[error] // why the line of a step was not written; nil: none is missing
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
		ends:  make([]*stageEnd, spec.ranks()),
		spare: tensorops.NewSpare(), copies: tensorops.NewHostMemory(0), recorder: newRecorder()}
	for _, k := range spec.Adopt {
		l.spare.Add(k.spare)
		k.spare = nil
	}
	if len(spec.Adopt) == 0 { // there is little, or much that is not used again, such as what came from a checkpoint
		l.spare.Drop()
	}
	l.memory = tensorops.NewMemory(l.spare, 0)
	l.host = l.memory.NewArena("transfers")
	l.trim, l.endSpare = sync.OnceFunc(func() { l.memory.Trim(math.MaxInt64) }), sync.OnceFunc(l.spare.Drop)
	l.hurry, l.over = make(chan struct{}), make(chan struct{})
	l.endSoon, l.endNow = sync.OnceFunc(func() { close(l.hurry) }), sync.OnceFunc(func() { close(l.over) })
	l.edges, l.rescued = make([]*edgeMemory, spec.ranks()), make([]*shadow, spec.ranks())
	for rank := range l.streams {
		if spec.host(rank) == "" {
			if k := spec.kept(rank); k != nil {
				l.computes[rank], l.streams[rank] = k.take()
			} else if s := l.rescue(rank); s != nil {
				l.streams[rank] = s.stream
			} else {
				l.streams[rank] = spec.device(rank).NewStream(spec.stageName(rank))
			}
			if spec.apart() {
				if a, ok := tensorops.Beside(l.streams[rank].Arena(), spec.stageName(rank)+" (incoming)"); ok {
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
	l.openShadows()
	if l.log = spec.Logger; l.log == nil {
		l.log = slog.New(slog.DiscardHandler) // events and errors say what matters
	}
	l.log = l.log.With("run", spec.Run, "attempt", attempt)
	l.renewing.Store(spec.Carry != nil)
	l.shown.Store(&spec)
	return l, nil
}

// addCell makes an actor's cell.
func (l *local) addCell(name string, rank int) {
	c := newStatusCell(name, rank, &l.moves)
	l.cells, l.byName[name] = append(l.cells, c), c
}

// part returns the common part of an actor of the run.
func (l *local) part(name string) part {
	return part{spec: &l.spec, cell: l.byName[name], runID: l.id}
}

// newStage makes the actor of a rank in this process.
func (l *local) newStage(rank int) *stageActor {
	a := &stageActor{part: l.part(l.spec.stageName(rank)), local: l, rank: rank, at: l.spec.place(rank), stream: l.streams[rank],
		edges: edges{memory: l.edges[rank]}}
	for _, s := range l.shadows {
		if s != nil && l.spec.ShadowAt(s.rank) == rank {
			a.shadows = append(a.shadows, s)
		}
	}
	a.retired = l.retired[rank]
	return a
}

// close frees what the process holds, except for l.kept, after the last actor of the run has ended. All memory of the
// streams is freed with it, including tensors held by stages and by messages that are still in a
// mailbox.
func (l *local) close() {
	if l.spec.Detach != nil {
		l.spec.Detach()
	}
	stays := make([]bool, len(l.streams))
	for _, k := range l.kept {
		stays[k.Rank] = true
	}
	for rank, s := range l.rescued { // its stream is that of its shadow
		stays[rank] = stays[rank] || s != nil && s.stays
	}
	for rank, s := range l.streams {
		if s != nil && !stays[rank] {
			s.Close()
		}
	}
	l.builders.Wait()
	for rank, c := range l.computes {
		if c == nil || stays[rank] {
			continue
		}
		if err := c.Close(); err != nil {
			l.log.Error("close a stage", "rank", rank, "error", err)
		}
	}
	all := slices.Clone(l.shadows)
	for _, some := range l.retired {
		all = append(all, some...)
	}
	for _, s := range all {
		if s == nil || s.stays {
			continue
		}
		if err := s.close(); err != nil {
			l.log.Error("close a shadow", "rank", s.rank, "error", err)
		}
	}
	for rank, s := range l.streams { // no rank uses the memory of another now
		if s == nil {
			continue
		}
		if !stays[rank] {
			s.Arena().Close()
		}
		if a := l.arrivals[rank]; a != nil {
			a.Close()
		}
		l.edges[rank].close()
	}
	if l.shutdown != nil {
		l.shutdown()
	}
	if len(l.kept) > 0 {
		l.spare.Keep()
		l.kept[0].spare = l.spare
	} else {
		l.spare.Drop()
	}
	l.memory.Close()
	l.copies.Close()
	l.spec = Spec{} // a kept Run must not keep the data alive
	l.shown.Store(nil)
}

// status reads all cells.
func (l *local) status() []event.Snapshot {
	var all []event.Snapshot
	for _, c := range l.cells {
		all = append(all, l.inGroup(c.Load()))
	}
	return all
}

// inGroup adds to a stage's snapshot the collective in which its device waits. It is computed when
// a status is read: no actor knows it.
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
