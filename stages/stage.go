package stages

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// Errors of a stage's protocol. They name the chunk and the microbatch.
var (
	// ErrMicrobatch: a pass was asked for out of order: a backward without its
	// forward, a forward twice.
	ErrMicrobatch = errors.New("microbatch is not where this pass expects it")
	// ErrInput: an activation or gradient has another shape than the layer takes.
	ErrInput = errors.New("unexpected tensor on an edge")
)

// ChunkSpec is a chunk: a run of the model's layers.
type ChunkSpec struct {
	Chunk       int // its number, in pipeline order
	First, Last int // layers [First, Last) of Model.Symbols; equal: an empty chunk
}

// Options are what a stage needs besides the model.
type Options struct {
	Seed      uint64
	Optimizer Optimizer
	Inference bool // no gradients and no optimizer state
	// Pack keeps every linear layer's weight a second and a third time, in the
	// order in which products read it: packed once a step instead of once a
	// microbatch.
	Pack bool
	// PackBytes is the most that these may take, above which there are none; 0: any size.
	PackBytes int64
	// StepTokens is the largest number of tokens in a step; 0: not known.
	StepTokens int
	// Logits is how many of them exist at a time, in elements; 0: as many as are best for
	// a CPU. A device whose every operation costs a launch, and whose memory is the faster
	// to read a gradient only a few times, takes more. It decides how the head's weight
	// gradient is summed, and so its last bits.
	Logits int
	// BF16 is mixed precision: matrix products and attention multiply bfloat16, and what the
	// language models' layers make and keep is of that type. Weights, their gradients'
	// sums and the optimizer's state stay float32.
	BF16 bool
	// Copies keeps, with BF16, every linear layer's weight a second time in bfloat16, which the
	// optimizer writes along with the weight, and products read.
	Copies bool
	// LowBias does so, with Copies, with the biases too, where what they are added to is bfloat16. A GPU's
	// library adds no others without a way through float32. It changes what is added, unlike Copies.
	LowBias bool
	// BriefGrads keeps the gradient of a large parameter only from the first layer that adds to it until the update,
	// and lets activations have its memory in between. It saves memory where a step is a single microbatch,
	// whose activations go as its gradients come; no bit depends on it. It is for memory that the host addresses.
	BriefGrads bool
	// MemoryBytes is what the stage's pool of memory may hold: before it asks for more, it gives back what is free. 0: any.
	MemoryBytes int64
	// LowWeights keeps, with Inference and BF16, the weights of products in bfloat16 alone.
	LowWeights bool
	// Residual is the type of the residual stream, which is what travels between chunks:
	// tensorops.Float32, or with BF16 also BFloat16.
	Residual tensorops.DType
	// Wire, where it is tensorops.BFloat16, rounds what travels between a language model's chunks to that
	// type, forward and backward: half the bytes of float32. What is trained depends on the cuts then.
	Wire tensorops.DType
	// Tensor shares the layers with other ranks; zero: the stage has them whole.
	Tensor TensorParallel
	// Context shares the positions of each sequence with other ranks; zero: the stage has whole sequences.
	Context ContextParallel
	// Data shares the microbatches with other ranks; zero: the stage computes all.
	Data DataParallel
	// NoOverlap waits for each collective where it begins, to measure what is gained beside that.
	NoOverlap bool
}

// Stage is one rank's part of the model on one stream. It is used by one
// goroutine at a time. Its methods record; nothing is computed until the caller
// submits the list.
type Stage struct {
	opened  map[*unit]OpenLayer
	hooks   hooks // what ranks do together in a pass; none for one rank
	boxes   boxes
	model   *Model
	stream  tensorops.Stream
	opts    Options
	chunks  map[int]*chunk
	order   []*chunk      // as given
	byParam []*localParam // by Param.Index; nil: not on this rank
	local   []*localParam // those that are, in the model's order
	norms   []float64
	flat    flatGrads        // of a data-parallel stage
	parts   partExchange     // of one whose replicas have parts of the optimizer's state
	holding *chunk           // whose weights may be gathered, where replicas have parts of them
	normsT  tensorops.Tensor // [len(local)] float64 on the device
}

type chunk struct {
	number int
	layers []layer
	wiring
	needsTokens  bool
	computesLoss bool
	fields       []string // of the data that its layers read
	// Layers of multi-token prediction in it, and before it.
	mtp, mtpBefore int
	live           map[int]*inFlight
	spare          []*inFlight
	queued         bool // see Stage.Queue: what microbatches in flight had is used for no other
	checks         []check
	weightsDone    []int                               // by layer: microbatches of the step whose weight gradients it has made; for flatGrads
	back           []bool                              // by layer: it takes part in the backward pass
	seen           func(value int, t tensorops.Tensor) // of a dry run; else nil
}

// Microbatch is what a pass works on.
type Microbatch struct {
	Step          int64 // from 1; with Index, the identity
	Index         int   // in the step
	FirstSequence int   // place of its first sequence in the global batch
	Sequences     int   // B
	Positions     int   // T
	FirstPosition int   // of each sequence's first token; 0 but in generation
	// Tokens and Targets have B·T ids and stay untouched until the forward's
	// list has completed. Chunks that neither embed nor lose ignore them.
	Tokens, Targets []int32
	// Fields are those that the chunk reads, in the order of Stage.Fields; they too stay
	// untouched until the list has completed.
	Fields  []tensorops.Array
	Collect bool // copy the model's outputs: see Stage.Outputs
	// Of is how many microbatches of the step this stage computes, for a stage with replicas. With the
	// last one it begins the sums of gradients over them, layer by layer; 0: they are left to GradNorms. All
	// replicas have to compute as many, in the same order.
	Of        int
	Train     bool // keep what a backward needs, and drop out
	Recompute bool // keep only each decoder layer's input
	// HeadLater puts the head's weight gradient off until WeightGrad. The gradients of
	// all logits, [B·T, V] for each depth, are kept until then. Where the two gradients
	// of the chunk with the loss are asked for one by one, InputGrad makes the weight
	// gradients of all its other layers.
	HeadLater bool
}

// headLater reports whether this pass puts the head's weight gradient off.
func (mb *Microbatch) headLater() bool { return mb.HeadLater && mb.Train }

// NewStage allocates the parameters that the chunks use on a stream.
// Weights are undefined until Initialise or Load.
func NewStage(m *Model, stream tensorops.Stream, chunks []ChunkSpec, o Options) (*Stage, error) {
	m, err := m.shard(o.Tensor)
	if err != nil {
		return nil, err
	}
	s := &Stage{opened: make(map[*unit]OpenLayer), model: m, stream: stream, opts: o, chunks: make(map[int]*chunk),
		byParam: make([]*localParam, len(m.Params))}
	s.hooks = s.hooksOf()
	for _, spec := range chunks {
		if spec.First < 0 || spec.Last < spec.First || spec.Last > len(m.layers) {
			return nil, fmt.Errorf("%w: chunk %d has layers %d to %d of %d", ErrModel, spec.Chunk, spec.First, spec.Last, len(m.layers))
		}
		if s.chunks[spec.Chunk] != nil {
			return nil, fmt.Errorf("%w: chunk %d is given twice", ErrModel, spec.Chunk)
		}
		c := &chunk{number: spec.Chunk, layers: m.layers[spec.First:spec.Last], live: make(map[int]*inFlight)}
		c.wiring = m.wiring(spec.First, spec.Last)
		for i := spec.First; i < spec.Last; i++ {
			c.back = append(c.back, m.GoesBack(i))
		}
		for _, l := range c.layers {
			u, own := l.(*unit)
			if own {
				c.addFields(u.fields)
			}
			c.needsTokens = c.needsTokens || !own && l.symbol() == SymbolEmbedding
			c.computesLoss = c.computesLoss || l.symbol() == SymbolLoss
		}
		c.mtp, c.mtpBefore = mtpIn(c.layers), mtpIn(m.layers[:spec.First])
		if c.mtp > 0 && c.mtp < m.Config.MTPLayers {
			return nil, fmt.Errorf("%w: chunk %d has %d of the %d multi-token-prediction layers, which stand in one chunk", ErrModel, spec.Chunk,
				c.mtp, m.Config.MTPLayers)
		}
		s.chunks[spec.Chunk] = c
		s.order = append(s.order, c)
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.allocate(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// lowWeights are the parameters, by Index, of which a bfloat16 copy serves as well as the
// weight itself: what is made of them is rounded to bfloat16 in any case.
func (s *Stage) lowWeights() map[int]bool {
	low := make(map[int]bool)
	if !s.opts.BF16 {
		return low
	}
	all := s.opts.LowWeights && s.opts.Inference
	s.eachLinear(func(m *linear, _ *localParam) { low[m.w.param.Index] = all || m.w.frozen() })
	for _, c := range s.order {
		for _, l := range c.layers {
			var tokens use
			switch l := l.(type) {
			case *embedding:
				tokens = l.tokens
			case *mtp:
				tokens = l.tokens
			default:
				continue
			}
			low[tokens.param.Index] = (all || tokens.frozen()) && s.opts.Residual == tensorops.BFloat16
		}
	}
	return low
}

// goesThrough reports whether a frozen weight is of a layer that makes both gradients at once,
// and is asked for one of its input. Then its own goes somewhere.
func (s *Stage) goesThrough(p *Param) bool {
	for _, c := range s.order {
		for _, l := range c.layers {
			if u, own := l.(*unit); own && u.whole && slices.ContainsFunc(u.params, func(x use) bool { return x.param == p }) {
				return slices.Contains(u.wants, true)
			}
		}
	}
	return false
}

func (s *Stage) weightType(p *Param, low map[int]bool) tensorops.DType {
	if low[p.Index] {
		return tensorops.BFloat16
	}
	return tensorops.Float32
}

func mtpIn(layers []layer) int {
	n := 0
	for _, l := range layers {
		if l.symbol() == SymbolMTP {
			n++
		}
	}
	return n
}

// allocate makes weights, gradients and optimizer state, in the model's order.
func (s *Stage) allocate() error {
	places := make([][numPlaces]bool, len(s.model.Params))
	for _, c := range s.chunks {
		for _, l := range c.layers {
			for _, u := range l.uses() {
				places[u.param.Index][u.place] = true
			}
		}
	}
	low := s.lowWeights()
	if pool, ok := s.stream.Arena().(*tensorops.Pool); ok {
		if s.opts.BriefGrads {
			pool.Join()
		}
		if s.opts.MemoryBytes > 0 {
			pool.Bound(s.opts.MemoryBytes)
		}
	}
	l := s.stream.NewList()
	for i, here := range places {
		if here == ([numPlaces]bool{}) {
			continue
		}
		p := s.model.Params[i]
		h := &localParam{param: p, here: here, owner: here[placeOwn] && s.answers(p), shared: !s.opts.Inference && !p.Frozen && here != p.places}
		if dtype := s.weightType(p, low); !s.splitWeight(l, h, dtype) {
			h.w = l.Alloc(dtype, p.Shape...)
		}
		if !s.opts.Inference && p.Frozen {
			if s.goesThrough(p) {
				h.g[placeOwn] = l.Alloc(tensorops.Float32, p.Shape...)
				l.Fill(h.g[placeOwn], 0)
			}
		} else if !s.opts.Inference {
			for place, used := range here {
				switch {
				case used && place == h.place() && s.opts.Data.size() > 1: // layFlat's
				case used && place == h.place() && s.brief(h): // openGrad's
				case used && place == h.place():
					h.g[place] = s.allocGrad(l, h)
				case used:
					rows := p.Shape[0]
					if s.opts.StepTokens > 0 {
						rows = min(rows, s.opts.StepTokens)
					}
					h.rows[place] = &rowGrad{slots: make(map[int32]int32), sum: l.Alloc(tensorops.Float32, rows, p.Shape[1])}
					l.Fill(h.rows[place].sum, 0)
				}
			}
			for j := range s.opts.Optimizer.stateParts() {
				if shape := s.ofState(p).Shape; elements(shape) > 0 {
					h.state[j] = l.Alloc(tensorops.Float32, shape...)
					l.Fill(h.state[j], 0)
				}
			}
		}
		s.byParam[i] = h
		s.local = append(s.local, h)
	}
	if s.opts.Data.size() > 1 && !s.opts.Inference {
		s.layFlat(l)
	}
	if !s.opts.Inference {
		s.norms = make([]float64, len(s.local))
		s.normsT = l.Alloc(tensorops.Float64, len(s.local))
	}
	if s.opts.Pack {
		s.allocatePacked(l)
	}
	if s.copies() {
		s.eachLinear(func(m *linear, _ *localParam) {
			for i, u := range m.uses() {
				if i > 0 && !s.opts.LowBias {
					break
				}
				h := s.byParam[u.param.Index]
				if !h.low.Valid() && !h.splitsWeight && h.w.DType() == tensorops.Float32 {
					h.low = s.allocCopy(l, h)
				}
			}
		})
	}
	return tensorops.Run(s.stream, l)
}

// NeedsTokens reports whether a chunk needs tokens.
func (s *Stage) NeedsTokens(chunk int) bool {
	c := s.chunks[chunk]
	return c.needsTokens || c.mtp > 0
}

// NeedsTargets reports whether a chunk needs the tokens' targets.
func (s *Stage) NeedsTargets(chunk int) bool {
	c := s.chunks[chunk]
	return c.computesLoss && s.model.language()
}

// Fields are the fields of the data that a chunk's layers read; a language model's read
// none, but tokens and targets.
func (s *Stage) Fields(chunk int) []string { return s.chunks[chunk].fields }

// Depths is how many times B the first dimension of a chunk's input has, and of its
// output, in training: 1, and 1 more for each layer of multi-token prediction before
// that edge.
func (s *Stage) Depths(chunk int) (in, out int) {
	c := s.chunks[chunk]
	return 1 + c.mtpBefore, 1 + c.mtpBefore + c.mtp
}

// ComputesLoss reports whether a chunk computes the loss.
func (s *Stage) ComputesLoss(chunk int) bool { return s.chunks[chunk].computesLoss }

// Finish ends a microbatch that ran forward only, when its loss has been read.
func (s *Stage) Finish(chunk, index int) {
	if c, f := s.find(chunk, index); f != nil && !f.mb.Train {
		c.release(nil, f) // its tensors were freed by the forward
	}
}

// Loss returns what a language model's loss layer reported for a microbatch whose forward has
// completed: the sum over targets, and their number. Report is any model's.
func (s *Stage) Loss(chunk, index int) (sum, targets float64) {
	c, f := s.find(chunk, index)
	if f == nil || !c.computesLoss {
		return 0, 0
	}
	return f.head().sum(0)
}

// head is the state of a language model's last layer.
func (f *inFlight) head() *headState {
	return f.states[len(f.states)-1].(*headState)
}

// MTPLoss is the metric of multi-token prediction's loss in a Report.
const MTPLoss = "mtp"

// Report returns what the loss layer of a chunk reported for a microbatch whose forward has
// completed.
func (s *Stage) Report(chunk, index int) Report {
	c, f := s.find(chunk, index)
	if f == nil || !c.computesLoss {
		return Report{}
	}
	if !s.model.language() {
		return s.report(c, f)
	}
	return s.reportOf(f)
}

// reportOf is a language model's.
func (s *Stage) reportOf(f *inFlight) (r Report) {
	r.Sum, r.Targets = f.head().sum(0)
	if mtp := s.mtpLoss(f); mtp != 0 { // it is weighed as the microbatch's own is
		r.Metrics = []Metric{{Name: MTPLoss, Sum: mtp * r.Targets, Count: r.Targets}}
	}
	return r
}

// Queue lets passes be recorded and submitted before those ahead of them have completed, and
// reports whether the stage can. It can if all its layers are a language model's: those of a program's own report
// when a pass has completed.
func (s *Stage) Queue() bool {
	if !s.model.language() {
		return false
	}
	for _, c := range s.order {
		for _, l := range c.layers {
			if _, own := l.(*unit); own {
				return false
			}
		}
	}
	for _, c := range s.order {
		c.queued = true
	}
	return true
}

// ReportLater is Report of a forward that was recorded last and may have been followed by other passes when
// it has completed: what it returns is for then.
func (s *Stage) ReportLater(chunk, index int) func() Report {
	c, f := s.find(chunk, index)
	if f == nil || !c.computesLoss || !c.queued {
		return func() Report { return s.Report(chunk, index) }
	}
	return func() Report { return s.reportOf(f) }
}

// MTPLoss is the loss that multi-token prediction reported for a microbatch whose forward
// has completed: the mean over its layers of the mean over their targets; 0 where there
// are none.
func (s *Stage) MTPLoss(chunk, index int) float64 {
	c, f := s.find(chunk, index)
	if f == nil || !c.computesLoss {
		return 0
	}
	return s.mtpLoss(f)
}

func (s *Stage) mtpLoss(f *inFlight) float64 {
	depths := s.model.Config.MTPLayers
	if !f.mb.Train || depths == 0 {
		return 0
	}
	var mean float64
	for depth := 1; depth <= depths; depth++ {
		sum, targets := f.head().sum(depth)
		mean += sum / max(targets, 1) / float64(depths)
	}
	return mean
}

// InFlight is the number of chunk outputs held.
func (s *Stage) InFlight() int {
	n := 0
	for _, c := range s.chunks {
		n += len(c.live)
	}
	return n
}
