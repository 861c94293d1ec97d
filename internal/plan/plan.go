package plan

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// Plan is a configuration resolved against itself: the model, who holds which
// layers, and the tables.
type Plan struct {
	cfg     *config.Config
	grid    *grid.Grid
	cost    CostFunc // nil: by arithmetic
	text    []byte   // of a user's own table, where that has been read already
	kernels string   // of GPUs, by a device's path; "": not known
	model   *stages.Model
	layout  *scheduler.Layout
	spec    scheduler.Spec
	table   *scheduler.Table
	report  *scheduler.Report
	bubble  float64              // of it at unit costs, a share
	chunks  [][]stages.ChunkSpec // by rank
	all     []stages.ChunkSpec   // in pipeline order
	routes  []stages.Route       // of them; nil: a language model's, one tensor from each to the next, and its gradient back
	shapes  []stages.Shape       // of the values between layers; nil: a language model's
	// wholeGrads: with parallel.zero = 3 gradients stay whole, where to share them would save nothing.
	wholeGrads bool
	zeroIdle   bool // see ZeroSaves
	warnings   []string
	// holdWeights: gathered weights stay until a rank turns to another chunk.
	holdWeights bool
}

// logitsOnGPU bounds the logits that exist at a time on a GPU: half a gibibyte of float32. Of bfloat16 it is twice as many.
const logitsOnGPU = 128 << 20

// packBytes bounds a stage's packed weights of float32.
const packBytes = 128 << 20

// EdgeType is the type of what travels between the chunks of a language model.
func (p *Plan) EdgeType() tensorops.DType { return new(p.StageOptions(0)).EdgeType() }

// EdgeBytes is what a rank sends of a microbatch from one chunk of a language model to the next.
func (p *Plan) EdgeBytes() int64 {
	of := p.EdgeType()
	if p.cfg.Pipeline.WireDType == bfloat16 {
		of = tensorops.BFloat16
	}
	positions := p.cfg.Model.Context / p.grid.Size(grid.Context)
	bytes := int64(of.Size()) * int64(p.cfg.Batch.Microbatch) * int64(positions) * int64(p.model.Config.Hidden)
	if p.sequence() { // the smallest group has the largest parts
		least := p.grid.TensorSize(0)
		for stage := range p.table.NumRanks() {
			least = min(least, p.grid.TensorSize(stage))
		}
		bytes /= int64(least)
	}
	return bytes
}

// StageOptions are those of a rank's stage.
func (p *Plan) StageOptions(rank int) stages.Options {
	c := p.cfg
	gpu := device.KindOf(c, rank) == device.CUDA
	logits := 0 // the usual number
	if gpu {
		logits = logitsOnGPU
	}
	o := stages.Options{Seed: c.Run.Seed, Optimizer: Optimizer(c), StepTokens: c.Batch.Sequences * c.Model.Context, Logits: logits,
		NoOverlap: !c.Parallel.Overlap}
	SetPrecision(&o, c)
	if o.BF16 && gpu {
		o.Logits *= 2
	}
	if c.Pipeline.WireDType == bfloat16 {
		o.Wire = tensorops.BFloat16
	}
	// On the CPU two more copies of the weights, in the order in which products read them, are worth their memory from
	// some microbatches on in bfloat16, to which packing converts every number. In float32 they take 4 to 6 % off a
	// step of a small model, and next to nothing off one of a large model. So there are none where memory is short. A
	// GPU's products read the weight as it lies.
	if share := c.Batch.Sequences / p.grid.Size(grid.Data); !gpu && share > 2*c.Batch.Microbatch {
		if o.BF16 {
			o.Pack = cpu.MultipliesBF16(c.Device.Kernels)
		} else {
			o.Pack, o.PackBytes = c.Parallel.Zero == 0 && c.Device.MemoryGiB == 0, packBytes
		}
	}
	o.BriefGrads = !gpu && p.grid.Size(grid.Data) == 1 && c.Batch.Sequences <= c.Batch.Microbatch && !c.Pipeline.PostValidation
	if !gpu { // whose launches recur with the addresses that its tensors have
		o.MemoryBytes = p.limitBytes()
	}
	o.Copies = o.BF16 && gpu
	o.LowBias = o.Copies
	return o
}

// New checks what needs no data. vocab is the vocabulary's size; from is the model
// whose weights the run goes on from, for what no key is for.
func New(cfg *config.Config, vocab int, from stages.Config) (*Plan, error) {
	return newBy(cfg, vocab, from, nil)
}

// NewOf is New in another process than the one that has the files: model is what that
// has come to, and table the text of the user's own table, nil if there is none.
func NewOf(cfg *config.Config, model stages.Config, table []byte) (*Plan, error) {
	p := &Plan{cfg: cfg, text: table}
	return p, p.make(model)
}

// NewBy is newPlan by costs that are known.
func newBy(cfg *config.Config, vocab int, from stages.Config, cost CostFunc) (*Plan, error) {
	p := &Plan{cfg: cfg, cost: cost}
	return p, p.make(modelConfig(cfg, vocab, from))
}

func (p *Plan) make(sizes stages.Config) error {
	cfg := p.cfg
	var err error
	if p.grid, err = grid.New(cfg.GridSizes()); err != nil {
		return cfg.Errorf("parallel.order", "%w", err)
	}
	model, err := stages.NewModel(sizes)
	if err != nil {
		return cfg.Errorf("model.family", "%v", err)
	}
	if err := model.Freeze(cfg.Model.Freeze); err != nil {
		return cfg.Errorf("model.freeze", "%w", err)
	}
	p.model = model
	if err := p.checkGroups(); err != nil {
		return err
	}
	if err := p.makeTable(); err != nil {
		return err
	}
	p.checkSteps()
	return p.checkZero()
}

// modelConfig takes the sizes from a configuration.
func modelConfig(c *config.Config, vocab int, from stages.Config) stages.Config {
	m := c.Model
	own := m.HeadDim
	if own*m.Heads == m.Hidden { // what it would be anyway
		own = 0
	}
	return stages.Config{HeadDim: own, Window: m.Window, Full: from.Full, RopeScaling: from.RopeScaling,
		AttentionBias: from.AttentionBias, MLPBias: from.MLPBias, Family: m.Family, Layers: m.Layers, Hidden: m.Hidden, Heads: m.Heads,
		KVHeads: m.KVHeads, FFN: m.FFN,
		Fields: from.Fields, Layout: m.Stack, Options: m.Options,
		Context: m.Context, Vocab: vocab, Dropout: m.Dropout, Tie: m.TieEmbeddings, RopeTheta: m.RopeTheta, NormEps: from.NormEps,
		MTPLayers: m.MTPLayers, MTPWeight: m.MTPWeight, MaxPositions: from.Positions()}
}

// Warnings say what of the configuration is legal and does less than it seems to.
func (p *Plan) Warnings() []string { return p.warnings }

func (p *Plan) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// checkSteps warns of a run that ends before its learning rate is what it is to be.
func (p *Plan) checkSteps() {
	if warmup, steps := p.cfg.Optimizer.WarmupSteps, p.cfg.Run.Steps; warmup > steps {
		p.warn("optimizer.warmup_steps = %d is more than run.steps = %d: the run ends before the learning rate comes to optimizer.lr", warmup,
			steps)
	}
}

// makeTable makes the table, and the layout that goes with its chunks.
func (p *Plan) makeTable() error {
	c := p.cfg
	p.spec = c.TableSpec()
	if c.Pipeline.Schedule == scheduler.Auto {
		// It goes by what the chunks cost, and so by the layout.
		n := p.spec.Ranks * p.spec.Chunks
		if err := p.makeLayout(n); err != nil {
			return err
		}
		if len(p.layout.Chunks) != n {
			return c.Errorf("pipeline.layout", "it has %s, but %s with %d each have %d", words.Plural(len(p.layout.Chunks), "chunk"),
				words.Plural(p.spec.Ranks, "stage"), p.spec.Chunks, n)
		}
		p.spec.Costs = p.costs()
	}
	var err error
	if c.HasOwnTable() {
		err = p.readTable()
	} else if p.table, err = scheduler.Generate(p.spec); err != nil {
		err = c.Errorf("pipeline.schedule", "%v", err)
	}
	if err != nil {
		return err
	}
	var timeline *scheduler.Timeline
	if p.report, timeline, err = scheduler.Analyse(p.table); err != nil {
		return c.Errorf("pipeline.schedule", "%v", err)
	}
	p.bubble = timeline.BubbleFraction
	if err := p.makeLayout(p.table.NumChunks); err != nil {
		return err
	}
	if err := p.place(); err != nil {
		return err
	}
	if err := p.checkEdge(); err != nil {
		return err
	}
	if p.model.Config.Language() {
		if len(c.Model.Freeze) > 0 { // some edges carry no gradient
			p.routes = p.model.Routes(p.all)
		}
		return nil
	}
	return p.makeRoutes()
}

// makeRoutes says which tensors go where, of another model than a language model, whose layers
// may take what earlier ones make than their neighbours.
func (p *Plan) makeRoutes() error {
	c := p.cfg
	var err error
	if p.shapes, err = p.model.Shapes(c.Batch.Microbatch); err != nil {
		return c.Errorf("model.family", "%w", err)
	}
	p.routes = p.model.Routes(p.all)
	skips := actors.Skips(p.routes)
	if p.text != nil && len(skips) > 0 { // which its sends and receives, if it has any, leave out
		if p.table, err = scheduler.ReadCSV(c.Pipeline.Schedule, string(p.text), skips...); err != nil {
			return c.Errorf("pipeline.schedule", "%v", err)
		}
	} else if err := p.table.SetSkips(skips); err != nil {
		return c.Errorf("pipeline.schedule", "%v", err)
	}
	if p.report, _, err = scheduler.Analyse(p.table); err != nil {
		return c.Errorf("pipeline.schedule", "%v", err)
	}
	return nil
}

// readTable reads a user's own table, which must have the configuration's sizes.
func (p *Plan) readTable() error {
	c := p.cfg
	path := c.Pipeline.Schedule
	var err error
	if p.text == nil {
		p.text, err = tableText(path)
	}
	if err == nil {
		p.table, err = scheduler.ReadCSV(path, string(p.text))
	}
	if err != nil {
		return c.Errorf("pipeline.schedule", "%v", err)
	}
	if !c.IsSet("pipeline.chunks") {
		p.chunksOfTable()
	}
	t, want := p.table, p.spec
	numChunks, err := t.Placement.Chunks(want.Ranks, want.Chunks)
	switch {
	case t.ForwardOnly:
		return c.Errorf("pipeline.schedule", "%s has no backward passes, so it cannot train", path)
	case t.NumRanks() != want.Ranks:
		return c.Errorf("pipeline.schedule", "%s has %d rows, one for each rank, but pipeline.stages is %d", path, t.NumRanks(), want.Ranks)
	case c.Batch.Sequences/c.Batch.Microbatch%p.grid.Size(grid.Data) != 0:
		return c.Errorf("parallel.data", "%d replicas can't share a step's %s alike, and %s is the table of each; choose sizes that divide",
			p.grid.Size(grid.Data), words.Plural(c.Batch.Sequences/c.Batch.Microbatch, "microbatch"), path)
	case t.Microbatches != want.Microbatches && p.grid.Size(grid.Data) > 1:
		return c.Errorf("pipeline.schedule", "%s has %s, but batch.sequences / batch.microbatch is %d, of which each of %d replicas has %d", path,
			words.Plural(t.Microbatches, "microbatch"), c.Batch.Sequences/c.Batch.Microbatch, p.grid.Size(grid.Data), want.Microbatches)
	case t.Microbatches != want.Microbatches:
		return c.Errorf("pipeline.schedule", "%s has %s, but batch.sequences / batch.microbatch is %d", path,
			words.Plural(t.Microbatches, "microbatch"), want.Microbatches)
	case err != nil || t.NumChunks != numChunks:
		return c.Errorf("pipeline.schedule", "%s has %s in placement %s, but pipeline.chunks is %d", path, words.Plural(t.NumChunks, "chunk"),
			t.Placement, want.Chunks)
	}
	return nil
}

// chunksOfTable takes the number of chunks on each rank from a user's own table.
func (p *Plan) chunksOfTable() {
	t := p.table
	for perRank := 1; perRank <= t.NumChunks; perRank++ {
		if n, err := t.Placement.Chunks(t.NumRanks(), perRank); err == nil && n == t.NumChunks {
			p.cfg, p.spec.Chunks = p.cfg.WithChunks(perRank), perRank
			return
		}
	}
}

// makeLayout cuts the model into chunks.
func (p *Plan) makeLayout(numChunks int) error {
	c := p.cfg
	var err error
	if text := c.Pipeline.Layout; text != "" {
		if p.layout, err = scheduler.ParseLayout(text); err != nil {
			return c.Errorf("pipeline.layout", "%v", err)
		}
		return nil
	}
	if len(c.Model.Freeze) > 0 { // layers that are alike cost differently
		of, spec := p.LayerCosts(p.layerCost()), p.layoutSpec()
		spec.Symbols = p.model.Symbols()
		steps := make([]float64, len(spec.Symbols))
		for i := range steps {
			steps[i] = of(i, scheduler.F) + of(i, scheduler.B)
		}
		if p.layout, err = scheduler.BalancedSequence(spec.Symbols, steps, spec, numChunks); err != nil {
			return c.Errorf("pipeline.stages", "%v", err)
		}
		return nil
	}
	if !p.model.Config.Language() {
		// A backward costs twice a forward, so that forwards say how to spread all.
		if p.layout, err = scheduler.BalancedSequence(p.model.Symbols(), p.model.FLOPs(1), p.layoutSpec(), numChunks); err != nil {
			return c.Errorf("pipeline.stages", "%v", err)
		}
		return nil
	}
	of := p.layerCost()
	step := func(s scheduler.Symbol) float64 { return of(s, scheduler.F) + of(s, scheduler.B) }
	costs := scheduler.LayerCosts{Embedding: step(scheduler.SymbolEmbedding), Layer: step(scheduler.SymbolLayer),
		Head: step(scheduler.SymbolLoss)}
	if p.layout, err = scheduler.BalancedLayout(costs, step(scheduler.SymbolMTP), p.layoutSpec(), numChunks); err != nil {
		return c.Errorf("pipeline.stages", "%v", err)
	}
	return nil
}

// place gives every rank its layers.
func (p *Plan) place() error {
	c := p.cfg
	if err := p.layout.Validate(p.layoutSpec()); err != nil {
		return c.Errorf("pipeline.layout", "%v", err)
	}
	p.chunks = make([][]stages.ChunkSpec, p.table.NumRanks())
	first := 0
	for v, symbols := range p.layout.Chunks {
		r := p.table.RankOf(v)
		spec := stages.ChunkSpec{Chunk: v, First: first, Last: first + len(symbols)}
		p.chunks[r], p.all = append(p.chunks[r], spec), append(p.all, spec)
		first += len(symbols)
	}
	return nil
}

// layoutSpec is what the layout has to fit. Before there is a table, its chunks are
// taken to go in a loop.
func (p *Plan) layoutSpec() scheduler.LayoutSpec {
	c := p.cfg
	s := scheduler.LayoutSpec{Layers: c.Model.Layers, MTPLayers: c.Model.MTPLayers, Ranks: c.Pipeline.Stages, Chunks: c.Pipeline.Chunks}
	if p.table != nil {
		s.Placement = p.table.Placement
	}
	if !p.model.Config.Language() {
		s.Symbols = p.model.Symbols()
	}
	return s
}

// EmbeddingRanks are the ranks that use the embedding's weight: for the embedding
// itself, for multi-token prediction, and where it is tied for the head.
func (p *Plan) EmbeddingRanks() []int {
	var ranks []int
	if !p.model.Config.Language() {
		return nil
	}
	for v, symbols := range p.layout.Chunks {
		uses := slices.Contains(symbols, scheduler.SymbolEmbedding) || slices.Contains(symbols, scheduler.SymbolMTP) ||
			p.cfg.Model.TieEmbeddings && slices.Contains(symbols, scheduler.SymbolLoss)
		if r := p.table.RankOf(v); uses && !slices.Contains(ranks, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// OutOfOrder names the passes whose order in the table changes the last bits of this model's
// gradients; the zero value: no bit differs from those of other tables.
func (p *Plan) OutOfOrder() scheduler.OutOfOrder {
	o := p.report.OutOfOrder
	o.LossForwards = o.LossForwards && p.model.Config.Language()
	o.InputGrads = o.InputGrads && len(p.model.WholeLayers()) > 0
	return o
}

// EvalTable is a forward-only table for n microbatches, of the chunks' placement.
func (p *Plan) EvalTable(microbatches int) (*scheduler.Table, error) {
	t, err := scheduler.Forwards(p.table.Placement, p.spec.Ranks, p.spec.Chunks, microbatches)
	if err == nil {
		err = t.SetSkips(p.table.Skips)
	}
	if err != nil {
		return nil, fmt.Errorf("validation: %w", err)
	}
	return t, nil
}

// Recomputes says which microbatches a rank recomputes. Partial recomputation
// keeps the activations of the first recompute_keep microbatches in each window
// of warm-up + 1 (Megatron-Core's rule).
func (p *Plan) Recomputes() func(rank, microbatch int) bool {
	switch p.cfg.Pipeline.Recompute {
	case "full":
		return func(int, int) bool { return true }
	case "partial":
		keep := p.cfg.Pipeline.RecomputeKeep
		window := make([]int, p.table.NumRanks())
		for r := range window {
			window[r] = p.table.ForwardsAhead(r)
		}
		return func(rank, microbatch int) bool { return microbatch%window[rank] >= keep }
	}
	return func(int, int) bool { return false }
}

// HeadLater says which of so many microbatches put the head's weight gradient off: the last ones,
// where the configuration asks for it and the schedule does not take gradients apart
// itself. Where it does, the weight gradients of the whole last chunk move (Megatron-Core's
// deferral of the embedding's weight gradient).
func (p *Plan) HeadLater() func(microbatches, microbatch int) bool {
	none := func(int, int) bool { return false }
	if p.cfg.Pipeline.DeferWeights == 0 {
		return none
	}
	last := int32(p.table.NumChunks - 1)
	for _, row := range p.table.Ranks {
		if slices.ContainsFunc(row, func(a scheduler.Action) bool { return a.Type == scheduler.I && a.Chunk != last }) {
			return none
		}
	}
	deferred := p.cfg.Pipeline.DeferWeights
	return func(microbatches, microbatch int) bool { return microbatch >= microbatches-deferred }
}

// Optimizer takes the constants from a configuration.
func Optimizer(c *config.Config) stages.Optimizer {
	o := c.Optimizer
	return stages.Optimizer{Name: o.Name, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Momentum: o.Momentum, WeightDecay: o.WeightDecay}
}
