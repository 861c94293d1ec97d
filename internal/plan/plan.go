package plan

import (
	"errors"
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

// Plan is a resolved configuration: the model, the layers of each rank, and the tables.
type Plan struct {
	cfg     *config.Config
	grid    *grid.Grid
	cost    CostFunc // nil: by arithmetic
	text    []byte   // of a user's own table, if it has been read already
	kernels string   // of GPUs, by a device's path; "": not known
	model   *stages.Model
	layout  *scheduler.Layout
	spec    scheduler.Spec
	table   *scheduler.Table
	report  *scheduler.Report
	bubble  float64              // of table at unit costs, a fraction
	chunks  [][]stages.ChunkSpec // by rank
	all     []stages.ChunkSpec   // in pipeline order
	routes  []stages.Route       // of the chunks; nil: those of a language model, one tensor from each to the next, and its gradient back
	shapes  []stages.Shape       // of the values between layers; nil: those of a language model
	// wholeGrads: with parallel.zero = 3 gradients stay whole, because sharing them would save nothing.
	wholeGrads bool
	zeroIdle   bool // see ZeroSaves
	// leaveExperts: the matrices of experts are not packed, because memory is short.
	leaveExperts bool
	warnings     []string
	// holdWeights: a rank keeps gathered weights until it starts another chunk.
	holdWeights bool
	memo        *memo // nil: settings may still change
}

// logitsOnGPU is the largest number of logits at a time on a GPU: half a GiB of float32. For bfloat16 the number is doubled.
const logitsOnGPU = 128 << 20

// packBytes is the limit of a stage's packed float32 weights.
const packBytes = 128 << 20

// EdgeType returns the number type of tensors between the chunks of a language model.
func (p *Plan) EdgeType() tensorops.DType { return new(p.StageOptions(0)).EdgeType() }

// EdgeBytes returns the bytes that a rank sends for a microbatch from one chunk of a language model to the next; the mean of all chunks if
// the edges of the model differ in width.
func (p *Plan) EdgeBytes() int64 {
	of := p.EdgeType()
	if p.cfg.Pipeline.WireDType == bfloat16 {
		of = tensorops.BFloat16
	}
	positions := p.cfg.Model.Context / p.grid.Size(grid.Context)
	bytes := int64(of.Size()) * int64(p.cfg.Batch.Microbatch) * int64(positions) * int64(p.edgeWidth())
	if p.sequence() { // the smallest group has the largest parts
		least := p.grid.TensorSize(0)
		for stage := range p.table.NumRanks() {
			least = min(least, p.grid.TensorSize(stage))
		}
		bytes /= int64(least)
	}
	return bytes
}

// edgeWidth returns the mean width of the edges between chunks.
func (p *Plan) edgeWidth() int {
	sum := 0
	for _, spec := range p.all[1:] {
		sum += p.model.EdgeWidth(spec.First)
	}
	if n := len(p.all) - 1; n > 0 {
		return sum / n
	}
	return p.model.Config.Hidden
}

// StageOptions returns the options of a stage.
func (p *Plan) StageOptions(rank int) stages.Options {
	c := p.cfg
	gpu := device.KindOf(c, rank) == device.CUDA
	logits := 0 // the usual number
	if gpu {
		logits = logitsOnGPU
	}
	o := stages.Options{Seed: c.Run.Seed, Optimizer: Optimizer(c), StepTokens: c.Batch.Sequences * c.Model.Context, Logits: logits,
		NoOverlap: !c.Parallel.Overlap, Preference: c.PreferenceLoss(),
		Distill: c.Distillation()}
	SetPrecision(&o, c)
	if o.BF16 && gpu {
		o.Logits *= 2
	}
	if c.Pipeline.WireDType == bfloat16 {
		o.Wire = tensorops.BFloat16
	}
	// On the CPU, two more copies of the weights, in the order in which products read them, are worth their memory. In
	// bfloat16, packing converts every number, so they pay off with some microbatches. In float32 they save 4 to 6 % of a
	// step of a small model, and next to nothing for a large model, so there are none if memory is short. In bfloat16, then only
	// experts have none: see limitPacks. GPU products read the weight in place.
	if share := c.Batch.Sequences / p.grid.Size(grid.Data); !gpu && share > 2*c.Batch.Microbatch {
		if o.BF16 {
			o.Pack = cpu.MultipliesBF16(c.Device.Kernels)
		} else {
			o.Pack, o.PackBytes = c.Parallel.Zero == 0 && c.Device.MemoryGiB == 0, packBytes
		}
		o.LeaveExperts = p.leaveExperts
	}
	o.BriefGrads = !gpu && p.grid.Size(grid.Data) == 1 && c.Batch.Sequences <= c.Batch.Microbatch && !c.Pipeline.PostValidation
	if !gpu { // a GPU needs the same addresses in every step, for its graphs
		o.MemoryBytes = p.limitBytes()
		o.JoinMemory = lengthsDiffer(c)
	}
	o.Copies = o.BF16 && gpu
	o.LowBias = o.Copies
	return o
}

// lengthsDiffer reports whether microbatches may differ in length. Without Options.JoinMemory a run keeps memory of each length, which can
// be several times what the longest one needs, the one that a forecast records.
func lengthsDiffer(c *config.Config) bool {
	return c.Documents() && c.Data.Packing != config.PackSplit || len(c.Data.Varying) > 0
}

// New resolves a configuration and checks everything that needs no data. vocab is the size of the vocabulary. from is the
// model whose weights the run starts from: it has the settings for which there is no key.
func New(cfg *config.Config, vocab int, from stages.Config) (*Plan, error) {
	return newBy(cfg, vocab, from, nil)
}

// NewOf is New for a process without the files: model is what the process with the files
// resolved, and table is the text of the user's own table, nil if there is none.
func NewOf(cfg *config.Config, model stages.Config, table []byte) (*Plan, error) {
	p := &Plan{cfg: cfg, text: table}
	return p, p.make(model)
}

// newBy is New with known costs.
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
	if wrong := (*stages.AdapterError)(nil); errors.As(err, &wrong) {
		return cfg.Errorf("adapter."+wrong.Key, "%s", wrong.Reason)
	}
	if err != nil {
		return cfg.Errorf("model.family", "%v", err)
	}
	if err := model.Freeze(cfg.Model.Freeze); err != nil {
		return cfg.Errorf("model.freeze", "%w", err)
	}
	p.model = model
	if k, vocab := cfg.Distill.TopK, model.Config.Vocab; cfg.Distillation() != nil && k > vocab {
		return cfg.Errorf("distill.top_k", "%d tokens of a vocabulary of %d; use %[2]d or fewer", k, vocab)
	}
	if err := p.checkPacking(); err != nil {
		return err
	}
	if err := p.checkOptimizerGroups(); err != nil {
		return err
	}
	if err := p.checkMuon(); err != nil {
		return err
	}
	if err := p.checkExperts(); err != nil {
		return err
	}
	if err := p.checkState(); err != nil {
		return err
	}
	if err := p.checkGroups(); err != nil {
		return err
	}
	if err := p.makeTable(); err != nil {
		return err
	}
	p.checkSteps()
	if err := p.checkLoads(); err != nil {
		return err
	}
	if err := p.checkZero(); err != nil { // of copies with other settings
		return err
	}
	p.limitPacks()
	p.memo = new(memo)
	return nil
}

// modelConfig takes the sizes from a configuration. The switches for which it has no key are those
// of the model whose weights the run starts from, or the family's own.
func modelConfig(c *config.Config, vocab int, from stages.Config) stages.Config {
	m, out := c.Model, from
	own := m.HeadDim
	if own*m.Heads == m.Hidden { // the default
		own = 0
	}
	out.Family, out.Layers, out.Hidden, out.Heads, out.KVHeads, out.FFN = m.Family, m.Layers, m.Hidden, m.Heads, m.KVHeads, m.FFN
	out.HeadDim, out.Window, out.Context, out.Vocab, out.Dropout, out.Tie = own, m.Window, m.Context, vocab, m.Dropout, m.TieEmbeddings
	out.RopeTheta, out.MTPLayers, out.MTPWeight, out.MaxPositions = m.RopeTheta, m.MTPLayers, m.MTPWeight, from.Positions()
	if m.Experts > 0 {
		expertConfig(m, &out.Experts, from.Family != "")
	}
	if stages.HasLatent(m.Family) {
		out.Latent.QRank, out.Latent.KVRank, out.Latent.Nope, out.Latent.Rope, out.Latent.Value = m.QLoRARank, m.KVLoRARank,
			m.QKNopeHeadDim,
			m.QKRopeHeadDim, m.VHeadDim
	}
	out.Layout, out.Options, out.Adapter = m.Stack, m.Options, c.LoRA()
	if from.Family == "" {
		out.SetDefaults()
	}
	return out
}

// Warnings returns warnings about valid settings that have less effect than a user may expect.
func (p *Plan) Warnings() []string { return p.warnings }

func (p *Plan) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// checkSteps warns if the run ends before the warm-up does, or before it can count validations.
func (p *Plan) checkSteps() {
	if run := p.cfg.Run; run.Patience > 0 && run.EvalEvery == 0 {
		p.warn("run.patience = %d has no effect with run.eval_every = 0: it counts validations during the run", run.Patience)
	}
	if warmup, steps := p.cfg.Optimizer.WarmupSteps, p.cfg.Run.Steps; warmup > steps {
		p.warn("optimizer.warmup_steps = %d is more than run.steps = %d: the run ends before the learning rate reaches optimizer.lr", warmup,
			steps)
	}
}

// makeTable makes the table and the layout of its chunks.
func (p *Plan) makeTable() error {
	c := p.cfg
	p.spec = c.TableSpec()
	if c.Pipeline.Schedule == scheduler.Auto {
		// It depends on the costs of the chunks, and so on the layout.
		n := p.spec.Ranks * p.spec.Chunks
		if err := p.makeLayout(n); err != nil {
			return err
		}
		if len(p.layout.Chunks) != n {
			return c.Errorf("pipeline.layout", "it has %s, but %s with %d chunks each need %d", words.Plural(len(p.layout.Chunks), "chunk"),
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
		if c.Freezes() { // some edges carry no gradient
			p.routes = p.model.Routes(p.all)
		}
		return nil
	}
	return p.makeRoutes()
}

// makeRoutes finds the tensors that chunks exchange, for models other than language models. Their layers
// may read outputs of layers that are not neighbors.
func (p *Plan) makeRoutes() error {
	c := p.cfg
	var err error
	if p.shapes, err = p.model.Shapes(c.Batch.Microbatch); err != nil {
		return c.Errorf("model.family", "%w", err)
	}
	p.routes = p.model.Routes(p.all)
	skips := actors.Skips(p.routes)
	if p.text != nil && len(skips) > 0 { // the table's sends and receives, if it has any, leave them out
		if p.table, err = p.ownTable(skips...); err != nil {
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
		p.table, err = p.ownTable()
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
		return c.Errorf("pipeline.schedule", "%s has no backward passes: it cannot train", path)
	case t.NumRanks() != want.Ranks:
		return c.Errorf("pipeline.schedule", "%s has %d rows, one for each stage, but pipeline.stages is %d", path, t.NumRanks(), want.Ranks)
	case c.Batch.Sequences/c.Batch.Microbatch%p.grid.Size(grid.Data) != 0:
		return c.Errorf("parallel.data",
			"%d replicas must have equally many microbatches, because %[3]s is the table of each, but a step has %[2]s; choose sizes that divide evenly",
			p.grid.Size(grid.Data), words.Plural(c.Batch.Sequences/c.Batch.Microbatch, "microbatch"), path)
	case t.Microbatches != want.Microbatches && p.grid.Size(grid.Data) > 1:
		return c.Errorf("pipeline.schedule", "%s has %s, but batch.sequences / batch.microbatch is %d, and each of %d replicas has %d of them",
			path,
			words.Plural(t.Microbatches, "microbatch"), c.Batch.Sequences/c.Batch.Microbatch, p.grid.Size(grid.Data), want.Microbatches)
	case t.Microbatches != want.Microbatches:
		return c.Errorf("pipeline.schedule", "%s has %s, but batch.sequences / batch.microbatch is %d", path,
			words.Plural(t.Microbatches, "microbatch"), want.Microbatches)
	case t.HasTurns() && !want.Pairs:
		return c.Errorf("pipeline.schedule", "%s has actions in parts, which take turns only with parallel.expert_overlap: set it to "+
			"true, or write whole pairs, (0F5;0B3)OVERLAP_F_B", path)
	case t.HasTurns() && p.pairsShareWeights():
		return c.Errorf("pipeline.schedule", "%s has actions in parts, but with parallel.zero = 3 the passes of a pair gather weights for "+
			"each other in the usual order: write whole pairs, (0F5;0B3)OVERLAP_F_B, or set zero to 2 at most", path)
	case want.Pairs && !t.HasPairs():
		return c.Errorf("parallel.expert_overlap", "%s has no overlapped pair, in which tokens could travel while the rank computes; write a "+
			"forward and a backward as one cell, (0F5;0B3)OVERLAP_F_B, or set expert_overlap = false", path)
	case err != nil || t.NumChunks != numChunks:
		return c.Errorf("pipeline.schedule", "%s has %s in placement %s, but pipeline.chunks is %d", path, words.Plural(t.NumChunks, "chunk"),
			t.Placement, want.Chunks)
	}
	return nil
}

// ownTable reads the text of a user's own table. Actions in parts become whole, and keep the order of their parts.
func (p *Plan) ownTable(skips ...scheduler.Skip) (*scheduler.Table, error) {
	t, err := scheduler.ReadCSV(p.cfg.Pipeline.Schedule, string(p.text), skips...)
	if err != nil || !t.HasParts() {
		return t, err
	}
	if _, err := scheduler.Check(t); err != nil {
		return nil, err
	}
	return t.Whole()
}

// chunksOfTable sets the number of chunks on each rank from a user's own table.
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
	if c.Freezes() || p.unequal() { // layers with one symbol cost differently
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
		// A backward pass costs twice a forward pass, so forward passes are enough for the balance.
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

// place assigns layers to the ranks.
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

// layoutSpec is what the layout must fit. Before there is a table, chunks are
// assumed to be placed in a loop.
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

// EmbeddingRanks returns the stages that use the weight of the embedding: for the embedding
// itself, for multi-token prediction, and for a tied head.
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

// OutOfOrder returns the passes whose order in the table changes the last bits of this model's
// gradients. The zero value means that all bits equal those of other tables.
func (p *Plan) OutOfOrder() scheduler.OutOfOrder {
	o := p.report.OutOfOrder
	o.LossForwards = o.LossForwards && p.model.Config.Language()
	o.InputGrads = o.InputGrads && len(p.model.WholeLayers()) > 0
	return o
}

// EvalTable returns a forward-only table for a number of microbatches, with the placement of the chunks.
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

// Recomputes returns a function that reports whether a rank recomputes a microbatch. Partial recomputation
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

// HeadLater returns a function that reports whether a microbatch defers the head's weight gradient. With
// pipeline.defer_weights the last ones do, unless the schedule splits backward passes
// itself: then the weight gradients of the whole last chunk are deferred (Megatron-Core's
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

// Optimizer returns the optimizer's constants in a configuration.
func Optimizer(c *config.Config) stages.Optimizer {
	o := c.Optimizer
	all := stages.Optimizer{Name: o.Name, Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, Momentum: o.Momentum, WeightDecay: o.WeightDecay,
		MuonScale: o.MuonScale, State: stateTypes[o.StateDType], EMA: o.EMA}
	for _, g := range o.Group {
		all.Groups = append(all.Groups, stages.Group(g))
	}
	return all
}
