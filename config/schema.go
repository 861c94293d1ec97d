package config

import (
	"math"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/data/samples"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// field is what the package knows about one key. Everything that goes over all
// keys (reading, printing, comparing, suggesting) goes over the schema.
type field struct {
	key     string
	at      func(*Config) any // a pointer to the value
	example string            // a value, as TOML, for messages
	check   check             // nil where any value of the type will do
	stored  check             // in its place for what a run has stored, maybe of another program's things; nil: check
	path    bool              // ${VAR} is expanded
	shape   bool              // comes from the checkpoint where model.from is set
	free    bool              // may differ when a run is resumed
	aside   bool              // is not printed where it has its default
}

// The documented order, which is the printed one.
var schema = []field{
	{key: "run.name", at: func(c *Config) any { return &c.Run.Name }, example: `"first-try"`, check: folderName, free: true},
	{key: "run.out", at: func(c *Config) any { return &c.Run.Out }, example: `"runs/first-try"`, check: pathName, path: true, free: true},
	{key: "run.steps", at: func(c *Config) any { return &c.Run.Steps }, example: "1000", check: whole(1, MaxSteps), free: true},
	{key: "run.seed", at: func(c *Config) any { return &c.Run.Seed }, example: "1", check: whole(0, math.MaxInt64)},
	{key: "run.eval_every", at: func(c *Config) any { return &c.Run.EvalEvery }, example: "250", check: whole(0, maxCount), free: true},
	{key: "run.patience", at: func(c *Config) any { return &c.Run.Patience }, example: "5", check: whole(0, maxCount), free: true},
	{key: "run.eval_batches", at: func(c *Config) any { return &c.Run.EvalBatches }, example: "20", check: whole(1, maxCount), free: true},
	{key: "run.checkpoint_every", at: func(c *Config) any { return &c.Run.CheckpointEvery }, example: "250", check: whole(0, maxCount),
		free: true},
	{key: "run.keep", at: func(c *Config) any { return &c.Run.Keep }, example: "3", check: whole(0, maxCount), free: true},
	{key: "run.max_skipped_steps", at: func(c *Config) any { return &c.Run.MaxSkippedSteps }, example: "10", check: whole(0, maxCount),
		free: true},
	{key: "run.trace_every", at: func(c *Config) any { return &c.Run.TraceEvery }, example: "100", check: whole(0, maxCount), free: true},
	{key: "run.log_every", at: func(c *Config) any { return &c.Run.LogEvery }, example: "10", check: whole(1, maxCount), free: true},
	{key: "run.stall_after_s", at: func(c *Config) any { return &c.Run.StallAfterS }, example: "60.0", check: number(0, maxStallS),
		free: true},
	{key: "run.stats_every", at: func(c *Config) any { return &c.Run.StatsEvery }, example: "100", check: whole(0, maxCount), free: true},
	{key: "run.sample_tokens", at: func(c *Config) any { return &c.Run.SampleTokens }, example: "200", check: whole(0, maxSampleTokens),
		free: true},
	{key: "run.sample_prompt", at: func(c *Config) any { return &c.Run.SamplePrompt }, example: `"Once upon a time"`,
		check: textUpTo(maxPromptBytes), free: true},

	{key: "model.family", at: func(c *Config) any { return &c.Model.Family }, example: `"gpt2"`, check: family, stored: lowerCaseName,
		shape: true},
	{key: "model.layers", at: func(c *Config) any { return &c.Model.Layers }, example: "4", check: whole(1, MaxLayers), shape: true},
	{key: "model.hidden", at: func(c *Config) any { return &c.Model.Hidden }, example: "128", check: whole(1, MaxHidden), shape: true},
	{key: "model.heads", at: func(c *Config) any { return &c.Model.Heads }, example: "4", check: whole(1, MaxHeads), shape: true},
	{key: "model.kv_heads", at: func(c *Config) any { return &c.Model.KVHeads }, example: "2", check: whole(1, MaxHeads), shape: true},
	{key: "model.head_dim", at: func(c *Config) any { return &c.Model.HeadDim }, example: "64", check: whole(0, MaxHidden), shape: true},
	{key: "model.window", at: func(c *Config) any { return &c.Model.Window }, example: "4096", check: whole(0, MaxContext), shape: true},
	{key: "model.ffn", at: func(c *Config) any { return &c.Model.FFN }, example: "512", check: whole(1, MaxFFN), shape: true},
	{key: "model.context", at: func(c *Config) any { return &c.Model.Context }, example: "128", check: whole(1, MaxContext), shape: true},
	{key: "model.dropout", at: func(c *Config) any { return &c.Model.Dropout }, example: "0.1", check: numberBelow(0, 1)},
	{key: "model.tie_embeddings", at: func(c *Config) any { return &c.Model.TieEmbeddings }, example: "true", shape: true},
	{key: "model.rope_theta", at: func(c *Config) any { return &c.Model.RopeTheta }, example: "10000.0", check: number(1, MaxRopeTheta),
		shape: true},
	{key: "model.vocab", at: func(c *Config) any { return &c.Model.Vocab }, example: "256", check: whole(0, MaxVocab), shape: true},
	{key: "model.mtp_layers", at: func(c *Config) any { return &c.Model.MTPLayers }, example: "1", check: whole(0, MaxMTPLayers), shape: true},
	{key: "model.mtp_weight", at: func(c *Config) any { return &c.Model.MTPWeight }, example: "0.3", check: number(0, maxMTPWeight)},
	{key: "model.from", at: func(c *Config) any { return &c.Model.From }, example: `"runs/first-try"`, check: textUpTo(maxPathBytes),
		path: true},
	{key: "model.freeze", at: func(c *Config) any { return &c.Model.Freeze }, example: `["embed", "0-7"]`,
		check: listUpTo(maxOptions, textUpTo(maxOptionBytes)), aside: true},
	{key: "model.stack", at: func(c *Config) any { return &c.Model.Stack }, example: `["input", "dense out=10", "cross_entropy"]`,
		check: listUpTo(maxOptions, textUpTo(maxOptionBytes)), shape: true, aside: true},
	{key: "model.options", at: func(c *Config) any { return &c.Model.Options }, example: `["width=3"]`,
		check: listUpTo(maxOptions, textUpTo(maxOptionBytes)), shape: true, aside: true},

	{key: "data.train", at: func(c *Config) any { return &c.Data.Train }, example: `["data/*.txt"]`, check: patterns, path: true, free: true},
	{key: "data.val", at: func(c *Config) any { return &c.Data.Val }, example: `["data/val.txt"]`, check: patterns, path: true, free: true},
	{key: "data.val_fraction", at: func(c *Config) any { return &c.Data.ValFraction }, example: "0.1", check: numberBelow(0, 1)},
	{key: "data.val_split", at: func(c *Config) any { return &c.Data.ValSplit }, example: `"blocks"`, check: oneOf("blocks", "tail")},
	{key: "data.tokenizer", at: func(c *Config) any { return &c.Data.Tokenizer }, example: `"bytes"`, check: tokenizerName, path: true},
	{key: "data.format", at: func(c *Config) any { return &c.Data.Format }, example: `"text"`, check: format, stored: lowerCaseName},
	{key: "data.too_long", at: func(c *Config) any { return &c.Data.TooLong }, example: `"refuse"`, check: oneOf("cut", "refuse"),
		aside: true},
	{key: "data.invalid_utf8", at: func(c *Config) any { return &c.Data.InvalidUTF8 }, example: `"bytes"`,
		check: oneOf(UTF8OrRefuse, UTF8OrBytes), free: true, aside: true},
	{key: "data.special_tokens", at: func(c *Config) any { return &c.Data.SpecialTokens }, example: `"tokens"`,
		check: oneOf(SpecialAsTokens, SpecialAsText)},
	{key: "data.label", at: func(c *Config) any { return &c.Data.Label }, example: `"label"`, check: textUpTo(maxPathBytes), aside: true},
	{key: "data.features", at: func(c *Config) any { return &c.Data.Features }, example: `["width", "height"]`,
		check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.targets", at: func(c *Config) any { return &c.Data.Targets }, example: `["price"]`,
		check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.labels", at: func(c *Config) any { return &c.Data.Labels }, example: `["train-labels-idx1-ubyte"]`, check: patterns,
		path: true, free: true, aside: true},
	{key: "data.val_labels", at: func(c *Config) any { return &c.Data.ValLabels }, example: `["t10k-labels-idx1-ubyte"]`, check: patterns,
		path: true, free: true, aside: true},
	{key: "data.header", at: func(c *Config) any { return &c.Data.Header }, example: "true", aside: true},
	{key: "data.separator", at: func(c *Config) any { return &c.Data.Separator }, example: `";"`, check: textUpTo(maxOptionBytes),
		aside: true},
	{key: "data.ids", at: func(c *Config) any { return &c.Data.IDs }, example: `["tokens"]`,
		check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.varying", at: func(c *Config) any { return &c.Data.Varying }, example: `["tokens"]`,
		check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.classes", at: func(c *Config) any { return &c.Data.Classes }, example: "10", check: whole(0, MaxVocab), aside: true},
	{key: "data.class_names", at: func(c *Config) any { return &c.Data.ClassNames }, example: `["cat", "dog"]`,
		check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.scale", at: func(c *Config) any { return &c.Data.Scale }, example: "0.0625", check: number(0, maxScale), aside: true},

	{key: "batch.sequences", at: func(c *Config) any { return &c.Batch.Sequences }, example: "16", check: whole(1, maxSequences)},
	{key: "batch.microbatch", at: func(c *Config) any { return &c.Batch.Microbatch }, example: "4", check: whole(1, maxSequences)},

	{key: "optimizer.name", at: func(c *Config) any { return &c.Optimizer.Name }, example: `"adamw"`, check: oneOf("adamw", "sgd")},
	{key: "optimizer.lr", at: func(c *Config) any { return &c.Optimizer.LR }, example: "0.001", check: numberAbove(0, maxLR)},
	{key: "optimizer.min_lr", at: func(c *Config) any { return &c.Optimizer.MinLR }, example: "0.0001", check: number(0, maxLR)},
	{key: "optimizer.warmup_steps", at: func(c *Config) any { return &c.Optimizer.WarmupSteps }, example: "100", check: whole(0, MaxSteps)},
	{key: "optimizer.decay", at: func(c *Config) any { return &c.Optimizer.Decay }, example: `"cosine"`,
		check: oneOf("cosine", "linear", "constant", "wsd")},
	{key: "optimizer.decay_steps", at: func(c *Config) any { return &c.Optimizer.DecaySteps }, example: "200", check: whole(0, MaxSteps)},
	{key: "optimizer.beta1", at: func(c *Config) any { return &c.Optimizer.Beta1 }, example: "0.9", check: numberBelow(0, 1)},
	{key: "optimizer.beta2", at: func(c *Config) any { return &c.Optimizer.Beta2 }, example: "0.95", check: numberBelow(0, 1)},
	{key: "optimizer.eps", at: func(c *Config) any { return &c.Optimizer.Eps }, example: "1e-8", check: number(minEps, 1)},
	{key: "optimizer.momentum", at: func(c *Config) any { return &c.Optimizer.Momentum }, example: "0.9", check: numberBelow(0, 1)},
	{key: "optimizer.weight_decay", at: func(c *Config) any { return &c.Optimizer.WeightDecay }, example: "0.1",
		check: number(0, maxWeightDecay)},
	{key: "optimizer.clip_norm", at: func(c *Config) any { return &c.Optimizer.ClipNorm }, example: "1.0", check: number(0, maxClipNorm)},

	{key: "pipeline.stages", at: func(c *Config) any { return &c.Pipeline.Stages }, example: "2", check: whole(1, maxStages), free: true},
	{key: "pipeline.chunks", at: func(c *Config) any { return &c.Pipeline.Chunks }, example: "2", check: whole(1, maxChunks), free: true},
	{key: "pipeline.schedule", at: func(c *Config) any { return &c.Pipeline.Schedule }, example: `"1f1b"`,
		check: orEmpty(notRemoved(orFile(schedule, tableExtension))), stored: orEmpty(orFile(scheduleWord, tableExtension)), free: true},
	{key: "pipeline.microbatch_group_size", at: func(c *Config) any { return &c.Pipeline.MicrobatchGroupSize }, example: "2",
		check: whole(0, maxMicrobatchGroupSize), free: true},
	{key: "pipeline.max_in_flight", at: func(c *Config) any { return &c.Pipeline.MaxInFlight }, example: "8", check: whole(0, limitInFlight),
		free: true},
	{key: "pipeline.defer_weights", at: func(c *Config) any { return &c.Pipeline.DeferWeights }, example: "2", check: whole(0, maxSequences),
		free: true},
	{key: "pipeline.post_validation", at: func(c *Config) any { return &c.Pipeline.PostValidation }, example: "true", free: true},
	{key: "pipeline.layout", at: func(c *Config) any { return &c.Pipeline.Layout }, example: `"Ett|ttL"`, check: textUpTo(maxLayoutBytes),
		free: true},
	{key: "pipeline.wire_dtype", at: func(c *Config) any { return &c.Pipeline.WireDType }, example: `"bfloat16"`,
		check: oneOf("", "bfloat16")},
	{key: "pipeline.recompute", at: func(c *Config) any { return &c.Pipeline.Recompute }, example: `"full"`,
		check: oneOf("none", "full", "partial"), free: true},
	{key: "pipeline.recompute_keep", at: func(c *Config) any { return &c.Pipeline.RecomputeKeep }, example: "1", check: whole(0, maxSequences),
		free: true},

	{key: "parallel.tensor", at: func(c *Config) any { return &c.Parallel.Tensor }, example: "2", check: eachWhole(1, maxStages, maxRanks),
		free: true},
	{key: "parallel.context", at: func(c *Config) any { return &c.Parallel.Context }, example: "2", check: whole(1, maxRanks), free: true},
	{key: "parallel.data", at: func(c *Config) any { return &c.Parallel.Data }, example: "2", check: whole(1, maxRanks), free: true},
	{key: "parallel.sequence", at: func(c *Config) any { return &c.Parallel.Sequence }, example: "true", free: true},
	{key: "parallel.zero", at: func(c *Config) any { return &c.Parallel.Zero }, example: "1", check: whole(0, 3), free: true},
	{key: "parallel.overlap", at: func(c *Config) any { return &c.Parallel.Overlap }, example: "false", free: true},
	{key: "parallel.edges", at: func(c *Config) any { return &c.Parallel.Edges }, example: `"broadcast"`,
		check: oneOf("auto", "direct", "broadcast", "scatter"), free: true},
	{key: "parallel.order", at: func(c *Config) any { return &c.Parallel.Order }, example: `"tp-cp-pp-dp"`, check: rankOrder, free: true},
	{key: "parallel.world", at: func(c *Config) any { return &c.Parallel.World }, example: "8", check: whole(0, maxRanks), free: true},

	{key: "device.kind", at: func(c *Config) any { return &c.Device.Kind }, example: `"auto"`, check: deviceWord, free: true},
	{key: "device.ranks", at: func(c *Config) any { return &c.Device.Ranks }, example: `["cuda:0", "cpu"]`,
		check: listUpTo(maxStages, deviceWord), free: true},
	{key: "device.dtype", at: func(c *Config) any { return &c.Device.DType }, example: `"float32"`, check: oneOf("float32", "bfloat16")},
	{key: "device.residual", at: func(c *Config) any { return &c.Device.Residual }, example: `"float32"`, check: oneOf("float32", "bfloat16")},
	{key: "device.threads", at: func(c *Config) any { return &c.Device.Threads }, example: "2", check: whole(0, maxThreads), free: true},
	{key: "device.kernels", at: func(c *Config) any { return &c.Device.Kernels }, example: `"auto"`, check: lowerCaseWord, free: true},
	{key: "device.memory_gib", at: func(c *Config) any { return &c.Device.MemoryGiB }, example: "16.0", check: number(0, maxMemoryGiB),
		free: true},
	{key: "device.tf32", at: func(c *Config) any { return &c.Device.TF32 }, example: "true", free: true},

	{key: "cluster.silence_s", at: func(c *Config) any { return &c.Cluster.SilenceS }, example: "3.0", check: number(minSilenceS, maxSilenceS),
		free: true},
	{key: "cluster.lease_s", at: func(c *Config) any { return &c.Cluster.LeaseS }, example: "30.0", check: number(minSilenceS, maxSilenceS),
		free: true},
	{key: "cluster.max_restarts", at: func(c *Config) any { return &c.Cluster.MaxRestarts }, example: "10", check: whole(0, maxCount),
		free: true},
	{key: "cluster.edge", at: func(c *Config) any { return &c.Cluster.Edge }, example: "true", free: true},
	{key: "cluster.shared_folder", at: func(c *Config) any { return &c.Cluster.SharedFolder }, example: `"auto"`, check: oneOf("auto", "off"),
		free: true},
	{key: "cluster.place", at: func(c *Config) any { return &c.Cluster.Place }, example: `["node1", "node2"]`,
		check: listUpTo(maxStages, textUpTo(maxNameBytes)), free: true},

	{key: "telemetry.metrics", at: func(c *Config) any { return &c.Telemetry.Metrics }, example: `"127.0.0.1:9464"`, check: orEmpty(hostPort),
		free: true},
	{key: "telemetry.metrics_insecure", at: func(c *Config) any { return &c.Telemetry.MetricsInsecure }, example: "true", free: true},
	{key: "telemetry.otlp", at: func(c *Config) any { return &c.Telemetry.OTLP }, example: `"http://localhost:4318"`,
		check: orEmpty(collector), free: true},
	{key: "telemetry.tensorboard", at: func(c *Config) any { return &c.Telemetry.TensorBoard }, example: "true", free: true},
}

// schedule checks for the name of a schedule, among them those that the program has
// registered by now.
func schedule(v any) (string, string) { return oneOf(scheduler.Schedules()...)(v) }

// notRemoved says what to choose instead of a schedule of earlier versions.
func notRemoved(c check) check {
	return func(v any) (string, string) {
		problem, hint := c(v)
		if instead := scheduler.Removed(v.(string)); problem != "" && instead != "" {
			return quoted(v.(string)) + " was removed", instead
		}
		return problem, hint
	}
}

// family and format check for names, among them those that the program has registered by now.
func family(v any) (string, string) { return orAnothers(oneOf(stages.Families()...))(v) }
func format(v any) (string, string) {
	return orAnothers(oneOf(append([]string{"text", "documents", "uint16", "uint32"}, samples.Formats()...)...))(v)
}

// orAnothers says that another program may know the value: a configuration of such a program
// is easily given to engine itself.
func orAnothers(c check) check {
	return func(v any) (string, string) {
		msg, hint := c(v)
		if msg != "" {
			hint += "; or run the program that registers it"
		}
		return msg, hint
	}
}

// keys and sections are the schema's, in its order.
var keys, sections = names()

func names() (keys, sections []string) {
	for _, f := range schema {
		keys = append(keys, f.key)
		if section := f.section(); !slices.Contains(sections, section) {
			sections = append(sections, section)
		}
	}
	return keys, sections
}

func lookup(key string) *field {
	if i := slices.Index(keys, key); i >= 0 {
		return &schema[i]
	}
	return nil
}

func (f *field) section() string {
	section, _, _ := strings.Cut(f.key, ".")
	return section
}

func (f *field) name() string {
	_, name, _ := strings.Cut(f.key, ".")
	return name
}
