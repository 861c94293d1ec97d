package actors

import (
	"errors"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// weightsActor reads stored tensors for stages in other processes, which have no files.
type weightsActor struct {
	part
	host   tensorops.Arena
	byName map[string]*stages.Param
}

func (a *weightsActor) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	switch m := ctx.Message().(type) {
	case *actor.Started:
		a.byName = make(map[string]*stages.Param)
		for _, p := range a.spec.Weights.Params {
			a.byName[p.Name] = p
		}
	case *ReadWeight:
		if !a.runID.accepts(m.Header) {
			return
		}
		a.cell.store(event.Snapshot{Step: m.Step, Doing: event.Reading})
		answer := &Weight{Header: m.Header, Request: m.Request, Param: m.Param, Err: errGone}
		switch {
		case a.failed:
		case !a.spec.holds(m.ReplyTo.GetAddress(), m.Param): // the codec refuses it already
			answer.Err = fmt.Errorf("the weight %s: %w", m.Param, ErrNotForIt)
		default:
			answer.Tensor, answer.Err = a.read(m)
		}
		ctx.Send(m.ReplyTo, answer)
		a.cell.store(event.Snapshot{Step: m.Step})
	}
}

func (a *weightsActor) read(m *ReadWeight) (tensorops.Tensor, error) {
	p := a.byName[m.Param]
	if p == nil {
		return tensorops.Tensor{}, fmt.Errorf("the model has no parameter %q", m.Param)
	}
	t, err := tensorops.NewTensor(a.host, tensorops.Float32, p.Shape...)
	if err != nil {
		return tensorops.Tensor{}, err
	}
	if err := a.spec.Weights.Source(p, m.Part, tensorops.Elements[float32](t)); err != nil {
		t.Release()
		return tensorops.Tensor{}, err
	}
	return t, nil
}

// errGone: the stages' process was told to abandon the attempt.
var errGone = errors.New("the run has ended here")

// WeightReader gets stored tensors from the process that has the checkpoint.
type WeightReader struct {
	mu      sync.Mutex
	ask     func(request uint64, param, part string) // nil until StartStages
	askRank func(request uint64, rank, shadow int, param, part string)
	last    uint64
	bytes   map[int]int64 // read from other ranks, by the rank that needs them
	waiting map[uint64]*reading
	quit    chan struct{}
	once    sync.Once
}

// reading is a tensor that a WeightReader waits for.
type reading struct {
	answer chan *Weight // with a buffer of 1
	dst    []float32    // nil: numbers already arrive there
}

// NewWeightReader makes a WeightReader for StartStages.
func NewWeightReader() *WeightReader {
	return &WeightReader{waiting: make(map[uint64]*reading), bytes: make(map[int]int64), quit: make(chan struct{})}
}

// Source is the stages.Source of the stored tensors. It waits for each tensor.
func (w *WeightReader) Source(p *stages.Param, part string, dst []float32) error {
	return w.read(p, dst, func(request uint64) { w.ask(request, p.Name, part) })
}

// Of returns the stages.Source of the weights and the optimizer state of another rank, for a rank that has the same ones.
func (w *WeightReader) Of(other, rank int) stages.Source { return w.from(other, 0, rank) }

// OfShadow returns the stages.Source of a rank's own state, from its shadow, which the actor of another rank holds.
func (w *WeightReader) OfShadow(holder, rank int) stages.Source { return w.from(holder, 1+rank, rank) }

func (w *WeightReader) from(other, shadow, rank int) stages.Source {
	return func(p *stages.Param, part string, dst []float32) error {
		err := w.read(p, dst, func(request uint64) { w.askRank(request, other, shadow, p.Name, part) })
		if err == nil {
			w.mu.Lock()
			w.bytes[rank] += int64(len(dst) * tensorops.Float32.Size())
			w.mu.Unlock()
		}
		return err
	}
}

// Read returns the bytes that a rank has read from another rank or from its shadow.
func (w *WeightReader) Read(rank int) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes[rank]
}

func (w *WeightReader) read(p *stages.Param, dst []float32, ask func(request uint64)) error {
	r := &reading{make(chan *Weight, 1), dst}
	w.mu.Lock()
	w.last++
	request := w.last
	w.waiting[request] = r
	w.mu.Unlock()
	ask(request)
	select {
	case m := <-r.answer:
		defer m.release()
		if m.Err != nil || m.placed {
			return m.Err
		}
		if m.Tensor.DType() != tensorops.Float32 {
			return fmt.Errorf("%s arrived as %v, want float32", p.Name, m.Tensor.DType())
		}
		src := tensorops.Elements[float32](m.Tensor)
		if len(src) != len(dst) {
			return fmt.Errorf("%s has %d numbers, but the model needs %d", p.Name, len(src), len(dst))
		}
		copy(dst, src)
		return nil
	case <-w.quit:
		return errGone
	}
}

// stop ends all waits.
func (w *WeightReader) stop() { w.once.Do(func() { close(w.quit) }) }

// take hands an answer to the goroutine that waits for it, if any.
func (w *WeightReader) take(m *Weight) {
	if w == nil { // nobody has asked
		m.release()
		return
	}
	w.mu.Lock()
	r := w.waiting[m.Request]
	delete(w.waiting, m.Request)
	w.mu.Unlock()
	if r == nil {
		m.release()
		return
	}
	r.answer <- m
}

// place returns the memory for the numbers of an answer, where its reader wants them; nil: the answer needs memory of its own. It is used
// until the attempt is detached.
func (w *WeightReader) place(request uint64, bytes int) []byte {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.waiting[request]
	if r == nil || len(r.dst)*tensorops.Float32.Size() != bytes {
		return nil
	}
	dst := tensorops.HostBytes(r.dst)
	r.dst = nil
	return dst
}

// readsFrom connects a WeightReader with the ranks of the attempt; answers go to an actor, which gives them to take.
func (l *local) readsFrom(w *WeightReader, answers *actor.PID) {
	w.askRank = func(request uint64, rank, shadow int, param, part string) {
		host := l.spec.host(rank)
		if host == "" {
			host = l.system.Address()
		}
		l.system.Root.Send(actor.NewPID(host, actorID(l.id.attempt, l.spec.stageName(rank))), &ReadState{
			Header: l.id.header(l.spec.Start.Step, 0), Request: request, Rank: rank, Shadow: shadow, Param: param, Part: part,
			ReplyTo: answers})
	}
}

// stopReads makes a WeightReader stop with the attempt's groups: a stage that halts while it is built must not wait for another process,
// which may have failed.
func (l *local) stopReads(w *WeightReader) {
	fail := l.spec.FailGroups
	l.spec.FailGroups = func(err error) {
		w.stop()
		if fail != nil {
			fail(err)
		}
	}
}
