package actors

import (
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// Source is the data that the loader reads. Its methods are pure functions of their arguments, so
// that a resumed run reads the same data.
type Source interface {
	// Train fills in one sequence of a step: tokens and their targets. step counts from 1, index
	// from 0.
	Train(step int64, index int, tokens, targets []int32) error
	// EvalWindows returns the number of validation windows, EvalLen the length of the window with
	// an index, and EvalFill fills it in.
	EvalWindows() int
	EvalLen(index int) int
	EvalFill(index int, tokens, targets []int32) error
}

// Varied is a Source whose training sequences differ in length; Train then gets TrainLen positions.
// A microbatch is as long as its longest sequence, at most Spec.Context; the other sequences are
// padded with positions that have no target.
type Varied interface {
	Source
	TrainLen(step int64, index int) int
}

// PackedSource is a Source whose sequences hold several documents (Spec.Packed). Its targets have no document's first
// token. The methods fill in, for each position of a sequence, the position at which its document starts.
type PackedSource interface {
	Source
	TrainStarts(step int64, index int, starts []int32) error
	EvalStarts(index int, starts []int32) error
}

// ReferencedSource is a Source of answers for stages.Preference. If the loss needs a reference model, it asks for what that says about
// each sequence.
type ReferencedSource interface {
	Source
	TrainReference(step int64, index int) (Reference, error)
	EvalReference(index int) (Reference, error)
}

// Reference is what a reference model says about an answer.
type Reference struct {
	LogP float64 // log-probability of the answer
	Good bool    // for KTO: the answer is a good one
}

// trainLen returns the length of a sequence of a step.
func (s *Spec) trainLen(step int64, index int) int {
	if v, ok := s.Data.(Varied); ok {
		return v.TrainLen(step, index)
	}
	return s.Context
}

// length returns the length of a microbatch whose longest sequence has n positions, and how many positions the grid adds to it.
func (s *Spec) length(n int) (positions, extra int) {
	if m := s.Multiple; m > 1 {
		positions = (n + m - 1) / m * m
		return positions, positions - n
	}
	return n, 0
}

// stepTokens returns the number of tokens of a step, without padding.
func (s *Spec) stepTokens(step int64) int64 {
	if _, ok := s.Data.(Varied); !ok {
		return int64(s.Sequences) * int64(s.Context)
	}
	var n int64
	for i := range s.Sequences {
		n += int64(s.trainLen(step, i))
	}
	return n
}

// fullness returns the targets of a step with documents, and the share of its sequences' positions that have tokens,
// in percent; nil: the data is not documents. Answers have no number of targets.
func (s *Spec) fullness(tokens int64, targets float64) (number, pct *float64) {
	_, varied := s.Data.(Varied)
	_, packed := s.Data.(PackedSource)
	if !varied && !packed {
		return nil, nil
	}
	full := 100 * float64(tokens) / (float64(s.Sequences) * float64(s.Context))
	if _, ok := s.Data.(ReferencedSource); ok { // a target of the loss is a pair
		return nil, &full
	}
	return &targets, &full
}

// Samples is a Source whose data are not tokens. Its methods replace Train and EvalFill; EvalLen is
// 1.
type Samples interface {
	Source
	// TrainFields returns the named fields of the samples [first, first+count) of a step, each
	// stacked to [count, …]. EvalFields returns those of the validation.
	TrainFields(step int64, first, count int, names []string) ([]tensorops.Array, error)
	EvalFields(first, count int, names []string) ([]tensorops.Array, error)
}

// Extent identifies the sequences of a microbatch within a step or a validation, and their length. Extra is how many of the positions
// Spec.Multiple adds: see stages.Microbatch.
type Extent struct{ FirstSequence, Sequences, Positions, Extra int }

// loader answers requests for microbatches. It keeps no position: the data follow from step and
// microbatch, so a resumed run continues at exactly the right place.
type loader struct {
	part
	pool batchPool
}

func (a *loader) Receive(ctx actor.Context) {
	defer a.rethrow(ctx)
	switch m := ctx.Message().(type) {
	case *DataRequest:
		if a.failed || !a.runID.accepts(m.Header) {
			return
		}
		a.cell.store(event.Snapshot{Step: m.Step, Phase: m.Phase, Doing: event.Reading})
		b, err := a.fill(m)
		if err != nil {
			a.fail(ctx, m.Step, err)
			return
		}
		a.cell.store(event.Snapshot{Step: m.Step, Phase: m.Phase})
		ctx.Send(m.ReplyTo, &Data{Header: m.Header, Chunk: m.Chunk, Microbatch: m.Microbatch, Batch: b})
	}
}

// fill reads a microbatch. Validation's last microbatch may hold fewer windows, and further ones
// only blank positions (see Spec.checkWindows). Sequences may differ in length. Shorter ones are
// padded with positions that have no target, which in a causal model do not affect the positions
// before them.
func (a *loader) fill(m *DataRequest) (*Batch, error) {
	data, first := a.spec.Data, int(m.Microbatch)*a.spec.MicrobatchSize
	count, positions := a.spec.MicrobatchSize, 0
	length := func(i int) int { return a.spec.trainLen(m.Step, i) }
	if m.Phase == event.Eval {
		var windows int
		if data, first, windows = a.spec.evalWindows(int(m.Microbatch)); windows == 0 {
			return a.fillBlank(m, a.spec.evalSets()[0].Data.EvalLen(0)), nil
		}
		count, length = windows, data.EvalLen
	}
	for i := range count {
		positions = max(positions, length(first+i))
	}
	positions, extra := a.spec.length(positions)
	if s, ok := data.(Samples); ok {
		return a.fillFields(s, m, first, Extent{FirstSequence: int(m.Microbatch) * a.spec.MicrobatchSize, Sequences: count, Positions: 1})
	}
	starts := 0
	if m.Starts {
		starts = count * positions
	}
	b := a.pool.get(count*positions, count*positions, starts)
	b.Extent = Extent{int(m.Microbatch) * a.spec.MicrobatchSize, count, positions, extra}
	for i := range count {
		err := fillSequence(data, m, first+i, length(first+i), b, i)
		if err != nil {
			b.Release()
			return nil, fmt.Errorf("%v data of step %d, sequence %d: %w", m.Phase, m.Step, first+i, err)
		}
	}
	if err := b.fillFurther(data, m, first, length); err != nil {
		b.Release()
		return nil, fmt.Errorf("%v data of step %d, sequences %d to %d: %w", m.Phase, m.Step, first, first+count-1, err)
	}
	b.keep(m)
	return b, nil
}

// fillFurther fills in what a loss needs beside tokens and targets: what a reference model or a teacher says.
func (b *Batch) fillFurther(data Source, m *DataRequest, first int, length func(int) int) error {
	taught, ok := data.(TaughtSource)
	switch {
	case len(m.Fields) == 0 || m.wantsTeacher() && m.Phase == event.Eval:
		return nil
	case m.wantsTeacher() && ok:
		return b.fillTeacher(taught, m, first, length)
	}
	return b.fillReference(data, m, first)
}

// fillReference fills in stages.ReferenceField.
func (b *Batch) fillReference(data Source, m *DataRequest, first int) error {
	source, ok := data.(ReferencedSource)
	if !ok || len(m.Fields) > 1 || m.Fields[0] != stages.ReferenceField {
		return fmt.Errorf("%w: the data have tokens, but not the fields %q", ErrSpec, m.Fields)
	}
	field := tensorops.NewArray(tensorops.Float64, []int{b.Sequences, 2})
	for i := range b.Sequences {
		var r Reference
		var err error
		if m.Phase == event.Eval {
			r, err = source.EvalReference(first + i)
		} else {
			r, err = source.TrainReference(m.Step, first+i)
		}
		if err != nil {
			return err
		}
		if field.Double[2*i] = r.LogP; r.Good {
			field.Double[2*i+1] = 1
		}
	}
	b.Fields = []tensorops.Array{field}
	return nil
}

// fillSequence reads a sequence of n positions, the i-th of a batch. Data that do not say where documents start have one
// in each sequence.
func fillSequence(data Source, m *DataRequest, sequence, n int, b *Batch, i int) (err error) {
	at, to := i*b.Positions, (i+1)*b.Positions
	if m.Tokens || m.Targets {
		tokens, targets := b.Tokens[at:to], b.Targets[at:to]
		if m.Phase == event.Eval {
			err = data.EvalFill(sequence, tokens[:n], targets[:n])
		} else {
			err = data.Train(m.Step, sequence, tokens[:n], targets[:n])
		}
		blank(tokens[n:], targets[n:])
	}
	if err != nil || !m.Starts {
		return err
	}
	starts := b.Starts[at:to]
	switch packed, ok := data.(PackedSource); {
	case !ok:
		clear(starts[:n])
	case m.Phase == event.Eval:
		err = packed.EvalStarts(sequence, starts[:n])
	default:
		err = packed.TrainStarts(m.Step, sequence, starts[:n])
	}
	alone(starts, n)
	return err
}

// fillBlank makes a microbatch of one sequence without targets, which is only computed along with
// those of other replicas.
func (a *loader) fillBlank(m *DataRequest, positions int) *Batch {
	positions, extra := a.spec.length(positions)
	starts := 0
	if m.Starts {
		starts = positions
	}
	b := a.pool.get(positions, positions, starts)
	b.Extent = Extent{int(m.Microbatch) * a.spec.MicrobatchSize, 1, positions, extra}
	blank(b.Tokens, b.Targets)
	alone(b.Starts, 0)
	if len(m.Fields) > 0 && !m.wantsTeacher() {
		b.Fields = []tensorops.Array{tensorops.NewArray(tensorops.Float64, []int{1, 2})}
	}
	b.keep(m)
	return b
}

// fillFields is fill for data that are not tokens.
func (a *loader) fillFields(data Samples, m *DataRequest, first int, e Extent) (b *Batch, err error) {
	defer caught(&err) // for panics in the program's own code
	b = a.pool.get(0, 0, 0)
	b.Extent = e
	if m.Phase == event.Eval {
		b.Fields, err = data.EvalFields(first, e.Sequences, m.Fields)
	} else {
		b.Fields, err = data.TrainFields(m.Step, first, e.Sequences, m.Fields)
	}
	if err == nil && len(b.Fields) != len(m.Fields) {
		err = fmt.Errorf("%w: the data returned %d fields for %q", ErrSpec, len(b.Fields), m.Fields)
	}
	if err != nil {
		b.Release()
		return nil, fmt.Errorf("%v data of step %d, samples %d to %d: %w", m.Phase, m.Step, first, first+e.Sequences-1, err)
	}
	return b, nil
}

// blank fills positions that take no part in the loss.
func blank(tokens, targets []int32) {
	clear(tokens)
	for i := range targets {
		targets[i] = tensorops.IgnoreTarget
	}
}

// alone makes each position from n on a document of its own, which sees nothing else.
func alone(starts []int32, n int) {
	for i := n; i < len(starts); i++ {
		starts[i] = int32(i)
	}
}

// Batch holds the tokens and targets of one microbatch, in host memory of the loader's pool.
type Batch struct {
	Extent
	Tokens, Targets []int32 // empty if not requested
	Starts          []int32 // where each position's document starts in its sequence; empty if not requested
	Fields          []tensorops.Array
	pool            *batchPool
}

// batchParts is the number of parts of a batch that are no fields.
const batchParts = 3

// parts returns the bytes of a batch's ids, which a message carries.
func (b *Batch) parts() [][]byte {
	return [][]byte{tensorops.HostBytes(b.Tokens), tensorops.HostBytes(b.Targets), tensorops.HostBytes(b.Starts)}
}

// Release returns the memory to the pool.
func (b *Batch) Release() {
	if b.pool != nil {
		b.pool.put(b)
	}
}

// keep drops what was not requested.
func (b *Batch) keep(m *DataRequest) {
	if !m.Tokens {
		b.Tokens = b.Tokens[:0]
	}
	if !m.Targets {
		b.Targets = b.Targets[:0]
	}
	if !m.Starts {
		b.Starts = b.Starts[:0]
	}
}

// batchPool keeps batches for reuse. It holds at most as many as were in flight at once, which
// limitDataAhead limits for each chunk.
type batchPool struct {
	mu   sync.Mutex
	free []*Batch
}

func (p *batchPool) get(tokens, targets, starts int) *Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &Batch{pool: p}
	if k := len(p.free) - 1; k >= 0 {
		b = p.free[k]
		p.free = p.free[:k]
	}
	b.Tokens, b.Targets, b.Starts, b.Fields = room(b.Tokens, tokens), room(b.Targets, targets), room(b.Starts, starts), nil
	return b
}

// room returns memory for n ids: that of a slice if it is enough.
func room(ids []int32, n int) []int32 {
	if cap(ids) < n {
		return make([]int32, n)
	}
	return ids[:n]
}

func (p *batchPool) put(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}
