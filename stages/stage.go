package stages

import (
	"errors"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// The errors of passes in the wrong order or with wrong tensors. They name the chunk and the
// microbatch.
var (
	// ErrMicrobatch: a pass was requested out of order: a backward without its forward, or a second
	// forward.
	ErrMicrobatch = errors.New("pass requested out of order")
	// ErrInput: a tensor has another shape or type than the layer takes.
	ErrInput = errors.New("unexpected tensor on an edge")
)

// ChunkSpec is a chunk: consecutive layers of the model.
type ChunkSpec struct {
	Chunk       int // its number, in pipeline order
	First, Last int // layers [First, Last) of Model.Symbols; equal: an empty chunk
}

// Options configures a stage.
type Options struct {
	Seed      uint64
	Optimizer Optimizer
	Inference bool // no gradients and no optimizer state
	// Pack keeps two more copies of the weights of linear layers and experts, in the order in which products
	// read them. So they are packed once a step instead of once a microbatch.
	Pack bool
	// PackBytes limits the memory of these copies: above the limit there are none of experts, or none at all; 0: no limit.
	PackBytes int64
	// LeaveExperts packs no weights of experts.
	LeaveExperts bool
	// StepTokens is the largest number of tokens in a step; 0: unknown.
	StepTokens int
	// Logits is the number of logits that exist at a time; 0: the best number for a CPU. A device
	// needs more if each operation costs a launch, or if its memory is faster when a gradient is
	// read only a few times. The number determines how the head's weight gradient is summed, and so
	// its last bits.
	Logits int
	// BF16 turns on mixed precision: matrix products and attention multiply bfloat16, and the
	// language models' layers compute and keep bfloat16. Weights, the sums of their gradients and
	// the optimizer state stay float32.
	BF16 bool
	// Copies keeps, with BF16, a bfloat16 copy of every linear layer's weight. The optimizer writes
	// it along with the weight, and products read it.
	Copies bool
	// LowBias does the same, with Copies, for biases that are added to bfloat16. A GPU's library
	// can add other biases only by way of float32. Unlike Copies, LowBias changes the result.
	LowBias bool
	// BriefGrads keeps the gradient of a large parameter only from the first layer that adds to it
	// until the update. Meanwhile activations may use its memory. It saves memory if a step is a
	// single microbatch, whose activations are freed as its gradients are created. It changes no
	// bit. It is only for memory that the host can address.
	BriefGrads bool
	// JoinMemory lets memory that was freed in one size serve another (tensorops.Pool.Join), as BriefGrads does. It saves
	// memory if microbatches differ in length. It changes no bit, and is only for memory that the host can address.
	JoinMemory bool
	// MemoryBytes limits the stage's pool of memory: before it grows beyond the limit, it releases
	// free memory; 0: no limit.
	MemoryBytes int64
	// LowWeights keeps, with Inference and BF16, the weights of products only in bfloat16.
	LowWeights bool
	// FrozenDType is the type in which frozen weights are held: BFloat16, Int8 or NF4; see frozen.go. With Float32
	// they are float32, or with BF16 bfloat16.
	FrozenDType tensorops.DType
	// Residual is the type of the residual stream, and so of the tensors between chunks:
	// tensorops.Float32, or with BF16 also BFloat16.
	Residual tensorops.DType
	// Wire, if it is tensorops.BFloat16, rounds the tensors between a language model's chunks to
	// that type, forward and backward. That is half the bytes of float32. Then the result depends
	// on where the model is cut.
	Wire tensorops.DType
	// Tensor shares the layers with other ranks; zero: the stage has whole layers.
	Tensor TensorParallel
	// Context shares the positions of each sequence with other ranks; zero: the stage has whole
	// sequences.
	Context ContextParallel
	// Data shares the microbatches with other ranks; zero: the stage computes all of them.
	Data DataParallel
	// Experts shares the experts of layers with other ranks; zero: the stage has all of them.
	Experts ExpertParallel
	// Preference replaces the loss of a language model; nil: it does not.
	Preference *Preference
	// Distill adds a teacher to the loss of a language model; nil: there is none.
	Distill *Distill
	// NoOverlap waits for each collective where it starts, to measure the gain of overlapping.
	NoOverlap bool
	onlyState bool // it has trained weights and optimizer state, but nothing to compute gradients with: see Shadow
}

// Stage is one rank's part of the model on one stream. One goroutine at a time may use it. Its
// methods record operations; nothing is computed until the caller submits the list.
type Stage struct {
	opened      map[*unit]OpenLayer
	hooks       hooks // what ranks do together in a pass; empty for one rank
	boxes       boxes
	model       *Model
	stream      tensorops.Stream
	opts        Options
	chunks      map[int]*chunk
	order       []*chunk      // as given
	byParam     []*localParam // by Param.Index; nil: not on this rank
	local       []*localParam // those on this rank, in the model's order
	norms       []float64
	flat        flatGrads        // for a data-parallel stage
	expertGrads expertGrads      // for a stage in an expert group
	parts       partExchange     // for a stage whose replicas have parts of the optimizer state
	expertParts partExchange     // for parameters that an expert group divides
	homes       []homeRound      // of matrices of which this rank has a part, and Muon needs all
	holding     []*chunk         // with HoldWeights: chunks whose weights may be gathered, the latest last
	normsT      tensorops.Tensor // [len(local)] float64 on the device
	routers     map[*expertFFN]*routerTotals
	routed      []*routerTotals // the same in the model's order
	loads       stepLoads       // of routers that balance globally
	turn        *turn           // of the pass that Together records now; nil: there is none
	times       *PartTimes      // of the action that is recorded; nil: it is not timed
	mostParts   int             // of an action that was timed
}

type chunk struct {
	number int
	layers []layer
	wiring
	needsTokens  bool
	computesLoss bool
	fields       []string // fields of the data that its layers read
	// The number of multi-token-prediction layers in the chunk, and before it.
	mtp, mtpBefore int
	// The channels of a language model's tensor before the chunk, and after it.
	widthIn, widthOut int

	live        map[int]*inFlight
	spare       []*inFlight
	queued      bool // see Stage.Queue: memory of microbatches in flight is not reused
	checks      []check
	weightsDone []int                               // by layer: microbatches of the step whose weight gradients are recorded; for flatGrads
	back        []bool                              // by layer: it takes part in the backward pass
	seen        func(value int, t tensorops.Tensor) // of a dry run; else nil
}

// Microbatch is the input of a pass.
type Microbatch struct {
	Step          int64 // from 1; with Index it identifies the microbatch
	Index         int   // index in the step
	FirstSequence int   // index of its first sequence in the global batch
	Sequences     int   // B
	Positions     int   // T
	FirstPosition int   // position of each sequence's first token; 0 except in generation
	// Tokens and Targets have B·T ids each. The caller must not change them until the forward's
	// list has completed. Chunks without embedding or loss ignore them.
	Tokens, Targets []int32
	// Starts, if not nil, packs documents: for each position, the position in its sequence at which its
	// document starts. Attention and positions stay inside each document. The caller must not change them
	// until the forward's list has completed. Chunks for which NeedsStarts is false ignore them.
	Starts  []int32
	longest int // positions of the longest document, if there are Starts
	// Fields are the fields that the chunk reads, in the order of Stage.Fields. The caller must not
	// change them until the list has completed.
	Fields  []tensorops.Array
	Collect bool // copy the model's outputs: see Stage.Outputs
	// Of is the number of microbatches of the step that this stage computes, for a stage with
	// replicas. With the last one it starts the sums of gradients over the replicas, layer by
	// layer. With 0 GradNorms computes the sums. All replicas must compute the same number, in the
	// same order.
	Of int
	// Extra is how many of the Positions, the last ones, no sequence of the microbatch has: its length must be a multiple of a number
	// that the groups of ranks need. Routers of experts do not count them.
	Extra     int
	Train     bool // keep what a backward needs, and apply dropout
	Recompute bool // keep only each decoder layer's input
	// HeadLater delays the head's weight gradient until WeightGrad. Until then the gradients of all
	// logits are kept, [B·T, V] for each depth. If the two gradients of the chunk with the loss are
	// requested separately, InputGrad also records the weight gradients of all its other layers.
	HeadLater bool
}

// headLater reports whether this pass delays the head's weight gradient.
func (mb *Microbatch) headLater() bool { return mb.HeadLater && mb.Train }

// NewStage allocates the parameters that the chunks use on a stream. Weights are undefined until
// Load. The error is ErrModel for chunks that don't fit the model or the options.
func NewStage(m *Model, stream tensorops.Stream, chunks []ChunkSpec, o Options) (*Stage, error) {
	m, err := m.shard(o.Tensor, o.Experts)
	if err == nil {
		err = o.checkExpertGroups()
	}
	if err == nil && o.Preference != nil {
		err = m.CheckPreference()
	}
	if err == nil && o.Distill != nil {
		err = m.checkDistill(o)
	}
	if err != nil {
		return nil, err
	}
	s := &Stage{opened: make(map[*unit]OpenLayer), model: m, stream: stream, opts: o, chunks: make(map[int]*chunk),
		byParam: make([]*localParam, len(m.Params))}
	s.hooks = s.hooksOf()
	for _, spec := range chunks {
		if spec.First < 0 || spec.Last < spec.First || spec.Last > len(m.layers) {
			return nil, fmt.Errorf("%w: chunk %d has the impossible layers %d to %d of %d", ErrModel, spec.Chunk, spec.First, spec.Last,
				len(m.layers))
		}
		if s.chunks[spec.Chunk] != nil {
			return nil, fmt.Errorf("%w: chunk %d occurs twice", ErrModel, spec.Chunk)
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
		c.widthIn, c.widthOut = m.EdgeWidth(spec.First), m.EdgeWidth(spec.Last)
		if c.mtp > 0 && c.mtp < m.Config.MTPLayers {
			return nil, fmt.Errorf("%w: chunk %d has %d of the %d multi-token-prediction layers: put all of them into one chunk", ErrModel,
				spec.Chunk,
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

// goesThrough reports whether a frozen weight belongs to a layer that computes both gradients at
// once and must compute that of its input. Then the weight's gradient needs memory.
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

func mtpIn(layers []layer) int {
	n := 0
	for _, l := range layers {
		if l.symbol() == SymbolMTP {
			n++
		}
	}
	return n
}

// allocate allocates weights, gradients and optimizer state, in the model's order.
func (s *Stage) allocate() error {
	places := make([][numPlaces]bool, len(s.model.Params))
	for _, c := range s.chunks {
		for _, l := range c.layers {
			for _, u := range l.uses() {
				places[u.param.Index][u.place] = true
			}
		}
	}
	types, inOut := s.weightTypes(), s.inOuts()
	if pool, ok := s.stream.Arena().(*tensorops.Pool); ok {
		if s.opts.BriefGrads || s.opts.JoinMemory {
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
		if s.opts.onlyState && p.Frozen {
			continue
		}
		h := &localParam{param: p, constant: p.Init.Const, here: here, owner: here[placeOwn] && s.answers(p), shared: !s.opts.Inference &&
			!p.Frozen && here != p.places}
		h.own, h.lrScale = s.opts.Optimizer.of(p)
		switch dtype := types[i]; {
		case dtype.Quantized():
			s.allocBlocks(l, h, dtype, inOut[i])
		case !s.splitWeight(l, h, dtype):
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
				case s.opts.onlyState:
				case used && place == h.place() && (s.opts.Data.size() > 1 || s.divided(p)): // allocated by layFlat or layExperts
				case used && place == h.place() && s.brief(h): // allocated by openGrad
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
			s.allocState(l, h)
			s.allocAverage(l, h)
		}
		s.byParam[i] = h
		s.local = append(s.local, h)
	}
	if !s.opts.Inference && !s.opts.onlyState {
		if s.opts.Data.size() > 1 {
			s.layFlat(l)
		}
		s.layExperts(l)
	}
	s.layHomes()
	if !s.opts.Inference && !s.opts.onlyState {
		s.norms = make([]float64, len(s.local))
		s.normsT = l.Alloc(tensorops.Float64, len(s.local))
		s.allocateRouters(l)
		s.allocateLoads(l)
	}
	if s.opts.Pack {
		s.allocatePacked(l)
	}
	if s.copies() {
		s.eachLinear(func(m *linear, _ *localParam) {
			for _, u := range m.factors(s.opts.LowBias) {
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

// Fields returns the fields of the data that a chunk's layers read. A language model reads tokens and targets; only the loss of a
// Preference may read ReferenceField, and that of a Distill TeacherIDs and TeacherLogP.
func (s *Stage) Fields(chunk int) []string {
	c := s.chunks[chunk]
	if s.opts.Preference.NeedsReference() && c.computesLoss {
		return []string{ReferenceField}
	}
	if s.opts.Distill != nil && !s.opts.Inference && c.computesLoss {
		return []string{TeacherIDs, TeacherLogP}
	}
	return c.fields
}

// Depths returns the first dimension of a chunk's input and of its output, in training, as
// multiples of B: 1, plus 1 for each layer of multi-token prediction before that edge.
func (s *Stage) Depths(chunk int) (in, out int) {
	c := s.chunks[chunk]
	return 1 + c.mtpBefore, 1 + c.mtpBefore + c.mtp
}

// ComputesLoss reports whether a chunk computes the loss.
func (s *Stage) ComputesLoss(chunk int) bool { return s.chunks[chunk].computesLoss }

// Finish ends a forward-only microbatch, after its loss has been read.
func (s *Stage) Finish(chunk, index int) {
	if c, f := s.find(chunk, index); f != nil && !f.mb.Train {
		c.release(nil, f) // its tensors were freed by the forward
	}
}

// Loss returns the report of a language model's loss layer for a microbatch whose forward has
// completed: the total loss of its targets, and their number. Report works for any model.
func (s *Stage) Loss(chunk, index int) (sum, targets float64) {
	c, f := s.find(chunk, index)
	if f == nil || !c.computesLoss {
		return 0, 0
	}
	r := s.reportOf(f)
	return r.Sum, r.Targets
}

// head returns the state of a language model's last layer.
func (f *inFlight) head() *headState {
	return f.states[len(f.states)-1].(*headState)
}

// MTPLoss is the name of the metric of multi-token prediction's loss in a Report.
const MTPLoss = "mtp"

// Report returns the report of a chunk's loss layer for a microbatch whose forward has completed.
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

// reportOf returns a language model's report.
func (s *Stage) reportOf(f *inFlight) (r Report) {
	if s.opts.Preference != nil {
		return f.head().judged
	}
	if d := s.opts.Distill; d != nil && f.mb.Train {
		return f.head().distillReport(d)
	}
	r.Sum, r.Targets = f.head().sum(0)
	if mtp := s.mtpLoss(f); mtp != 0 { // weighted like the microbatch's own loss
		r.Metrics = []Metric{{Name: MTPLoss, Sum: mtp * r.Targets, Count: r.Targets}}
	}
	return r
}

// Queue lets passes be recorded and submitted before earlier ones have completed, and reports
// whether the stage supports this. It does if all its layers belong to a language model: a
// program's own layers report when a pass has completed.
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

// ReportLater is Report for the forward that was recorded last, if other passes may be recorded
// before it has completed. Call the returned function after its completion.
func (s *Stage) ReportLater(chunk, index int) func() Report {
	c, f := s.find(chunk, index)
	if f == nil || !c.computesLoss || !c.queued {
		return func() Report { return s.Report(chunk, index) }
	}
	return func() Report { return s.reportOf(f) }
}

// MTPLoss returns the loss of multi-token prediction for a microbatch whose forward has completed:
// the mean over its layers of the mean over their targets; 0 if there are none.
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

// InFlight returns the number of chunk outputs held.
func (s *Stage) InFlight() int {
	n := 0
	for _, c := range s.chunks {
		n += len(c.live)
	}
	return n
}
