package config

import (
	"cmp"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/points"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// Defaults that depend on other keys are in resolve.
const (
	defaultMicrobatch    = 4
	defaultWarmupSteps   = 100
	defaultWarmupShare   = 10 // of run.steps
	defaultValFraction   = 0.1
	defaultShuffleWindow = 4096 // sequences
)

// Values of Data.InvalidUTF8.
const (
	UTF8OrRefuse = "refuse"
	UTF8OrBytes  = "bytes"
)

// Values of Data.SpecialTokens.
const (
	SpecialAsTokens = "tokens"
	SpecialAsText   = "text"
)

// Values of Run.Best.
const (
	BestWeights = "weights"
	BestFull    = "full"
	BestNone    = "none"
)

// Values of data.packing.
const (
	PackNone     = "none"
	PackFirstFit = "first-fit"
	PackSplit    = "split"
)

// OnePipeline returns the default of [parallel]: one rank for each stage.
func OnePipeline() Parallel {
	return Parallel{Tensor: []int{1}, Context: 1, Data: 1, Expert: 1, Overlap: true, Edges: "auto", Order: grid.DefaultOrder}
}

// setDefaults sets the keys whose defaults do not depend on other keys.
func (c *Config) setDefaults() {
	c.Run = Run{Name: "run", Steps: 1000, Seed: 1, EvalEvery: 250, EvalBatches: 20,
		CheckpointEvery: 250, Keep: 3, Best: BestWeights, MaxSkippedSteps: 10, LogEvery: 10, StallAfterS: 60, StatsEvery: 100}
	c.Model = Model{Family: "gpt2", Layers: 4, Hidden: 128, Heads: 4, Context: 128, RopeTheta: 10000, MTPWeight: 0.3, AuxLossWeight: 0.001,
		FrozenDType: FrozenAuto, DecoderSparseStep: 1, RoutedScalingFactor: 1, LoadBalancingType: MicrobatchBalance}
	c.Adapter = Adapter{Targets: []string{stages.AllLinear}}
	c.Distill = Distill{Loss: stages.ForwardKL, Temperature: 1, TopK: 64, Weight: 1}
	c.Preference = Preference{Gamma: 0.5, DesirableWeight: 1, UndesirableWeight: 1}
	c.Data = Data{ValSplit: "blocks", Tokenizer: "bytes", Format: "text", TooLong: "cut", Packing: PackNone, Split: "train",
		ShuffleWindow: defaultShuffleWindow, InvalidUTF8: UTF8OrRefuse,
		SpecialTokens: SpecialAsTokens, Header: true, Separator: ","}
	c.Batch = Batch{Sequences: 16}
	c.Optimizer = Optimizer{Name: "adamw", LR: 1e-3, Decay: "cosine", Beta1: 0.9, Beta2: 0.95,
		Eps: 1e-8, Momentum: 0.9, MuonScale: stages.MatchRMSAdamW, StateDType: "float32", WeightDecay: 0.1, ClipNorm: 1}
	c.Pipeline = Pipeline{Stages: 1, Chunks: 1, Recompute: "none"}
	c.Parallel = OnePipeline()
	c.Device = Device{Kind: "auto", DType: "float32", Kernels: "auto"}
	c.Cluster = Cluster{SilenceS: 3, LeaseS: 30, MaxRestarts: 10, Rebalance: true, SharedFolder: "auto", Shadow: "auto"}
}

// resolve sets the keys whose defaults depend on other keys.
func (c *Config) resolve() {
	if !c.IsSet("run.out") {
		c.Run.Out = "runs/" + c.Run.Name
	}
	if c.Model.From == "" {
		c.resolveShape()
	} else {
		c.clearShape()
	}
	if !c.IsSet("adapter.alpha") && c.Adapter.From == "" {
		c.Adapter.Alpha = 2 * float64(c.Adapter.Rank)
	}
	if !c.IsSet("preference.beta") {
		c.Preference.Beta = usualBeta(c.Preference.Loss)
	}
	for i := range c.Eval {
		c.Eval[i].resolve(c, i+1)
	}
	if !c.IsSet("data.val_fraction") && len(c.Data.Val) == 0 && len(c.Eval) == 0 {
		c.Data.ValFraction = defaultValFraction
	}
	if !c.IsSet("batch.microbatch") {
		c.Batch.Microbatch = c.usualMicrobatch()
	}
	if !c.IsSet("device.residual") {
		c.Device.Residual = c.Device.DType
	}
	if c.Optimizer.Decay == stages.Points {
		c.rateOfPoints(c.IsSet)
	} else if !c.IsSet("optimizer.min_lr") {
		c.Optimizer.MinLR = c.Optimizer.LR / 10
	}
	for i := range c.Optimizer.Group {
		c.Optimizer.Group[i].resolve(c, i+1)
	}
	if !c.IsSet("optimizer.momentum") && c.Muon() {
		c.Optimizer.Momentum = 0.95
	}
	if c.Optimizer.Decay != stages.Points && !c.IsSet("optimizer.warmup_steps") {
		c.Optimizer.WarmupSteps = min(defaultWarmupSteps, c.Run.Steps/defaultWarmupShare)
	}
	if !c.IsSet("pipeline.chunks") {
		c.Pipeline.Chunks = c.chunksOfLayout()
	}
	if c.Pipeline.Schedule == "" {
		c.Pipeline.Schedule = scheduler.DefaultSchedule(c.Pipeline.Stages, c.Pipeline.Chunks)
	}
	if !c.IsSet("pipeline.post_validation") {
		c.Pipeline.PostValidation = c.GainsByPostValidation() && c.ranksApart() && slices.Max(c.Parallel.Tensor) <= 1 &&
			c.Parallel.Context <= 1 && !c.MeetsInPasses()
	}
	if c.Pipeline.MicrobatchGroupSize == 0 {
		c.Pipeline.MicrobatchGroupSize = c.TableSpec().DefaultGroup()
	}
}

// chunksOfLayout returns the number of chunks of each stage in pipeline.layout if the schedule allows it, else the number
// that the schedule needs. (The plan reads the number of a user's own table.)
func (c *Config) chunksOfLayout() int {
	p := c.Pipeline
	least := scheduler.DefaultChunks(p.Schedule)
	layout, err := scheduler.ParseLayout(p.Layout)
	if err != nil || p.Stages < 1 || len(layout.Chunks)%p.Stages != 0 {
		return least
	}
	n := len(layout.Chunks) / p.Stages
	if _, takes := scheduler.StagesOf(cmp.Or(p.Schedule, scheduler.DefaultSchedule(p.Stages, n)), p.Stages, n); takes ||
		p.Schedule == scheduler.Auto {
		return n
	}
	return least
}

func (c *Config) resolveShape() {
	m := &c.Model
	if !c.IsSet("model.kv_heads") {
		m.KVHeads = m.Heads
	}
	if !c.IsSet("model.ffn") {
		m.FFN = 4 * m.Hidden
		if c.rotary() {
			// SwiGLU has three matrices where GELU has two: 8/3 keeps their size.
			m.FFN = roundUp((8*m.Hidden+2)/3, 32)
		}
	}
	c.resolveExperts()
	c.resolveLatent()
	if !c.Text() && !c.IsSet("model.context") {
		m.Context = 1
	}
	if !c.IsSet("model.tie_embeddings") {
		m.TieEmbeddings = stages.UsualTie(m.Family)
	}
	if theta := stages.UsualRopeTheta(m.Family); theta != 0 && !c.IsSet("model.rope_theta") {
		m.RopeTheta = theta
	}
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// Text reports whether the data is text or tokens, and not samples.
func (c *Config) Text() bool {
	return c.Data.Format == "text" || c.IDBytes() > 0 || c.Documents()
}

// IDBytes returns the size of a token id in bytes, 2 or 4, if the data is token ids, else 0.
func (c *Config) IDBytes() int {
	switch c.Data.Format {
	case "uint16":
		return 2
	case "uint32":
		return 4
	}
	return 0
}

// Documents reports whether the data is documents in JSON lines.
func (c *Config) Documents() bool { return c.Data.Format == "documents" }

// TokenizerPath returns data.tokenizer if it is a path, and "" if it is a name.
func (c *Config) TokenizerPath() string {
	if isPath(c.Data.Tokenizer) {
		return c.Data.Tokenizer
	}
	return ""
}

// TokenizerAt returns the value of data.tokenizer for a folder.
func TokenizerAt(folder string) string {
	if isPath(folder) {
		return folder
	}
	return "./" + folder
}

// Language reports whether the family is a language model, which reads tokens.
func (c *Config) Language() bool { return stages.Config{Family: c.Model.Family}.Language() }

// rateOfPoints sets the peak, the floor and the warm-up of the learning rate by optimizer.points, unless they are given.
func (c *Config) rateOfPoints(given func(key string) bool) {
	o := &c.Optimizer
	if peak := points.Peak(o.Points); peak > 0 && !given("optimizer.lr") {
		o.LR = peak
	}
	if !given("optimizer.min_lr") {
		o.MinLR = points.Least(o.Points)
	}
	if !given("optimizer.warmup_steps") {
		o.WarmupSteps = 0
	}
}

// followsPoints reports whether the learning rate follows optimizer.points, which are valid.
func (c *Config) followsPoints() bool {
	return c.Optimizer.Decay == stages.Points && len(c.Optimizer.Points) > 0
}

// Muon reports whether Muon updates some weights, which the CPU computes.
func (c *Config) Muon() bool { return c.updatesBy(stages.Muon) }

// StateInt8 is the value of optimizer.state_dtype for a state in 8 bits.
const StateInt8 = "int8"

// NarrowState reports whether the optimizer's state is not float32. Then the CPU computes the updates.
func (c *Config) NarrowState() bool {
	return c.Optimizer.StateDType == "bfloat16" || c.Optimizer.StateDType == StateInt8
}

// rotary reports whether the family is like Llama, with rotary positions and gated feed-forward layers.
func (c *Config) rotary() bool { return c.Language() && c.Model.Family != stages.GPT2 }

// clearShape empties the keys that WithShape will fill.
func (c *Config) clearShape() {
	for i := range schema {
		if f := &schema[i]; f.shape && !c.IsSet(f.key) {
			f.store(c, f.load(&Config{}))
		}
	}
}

// GainsByPostValidation reports whether the schedule can start the next step earlier with pipeline.post_validation: with equal
// costs and a device for each rank, the first rank finishes a step before the last one.
func (c *Config) GainsByPostValidation() bool {
	switch c.Pipeline.Schedule {
	case scheduler.ZBV:
		return c.Pipeline.Stages > 1
	case scheduler.ZBH2:
		// With a shared weight the first rank waits for the last rank's gradient of it.
		return c.Pipeline.Stages > 1 && !c.Model.TieEmbeddings && c.Model.MTPLayers == 0
	}
	return false
}

// ranksApart reports whether each rank has a device of its own. If ranks share one, work that
// a rank starts early delays the others, and the copies for a rollback cost 1 to 6 %.
func (c *Config) ranksApart() bool {
	type device struct {
		kind    string
		ordinal int
	}
	devices := make(map[device]bool)
	for rank := range c.Device.Ranks {
		d := device{c.Device.KindOf(rank), max(0, c.Device.OrdinalOf(rank))} // there may be only one GPU
		if slices.Contains(cpus, d.kind) {
			d.kind = cpus[0]
		}
		devices[d] = true
	}
	return len(devices) == c.Pipeline.Stages
}
