package config

import (
	"math"
	"reflect"
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
	example string // a value, as TOML, for messages
	unit    string // of a number: what it counts, or noUnit; "" for other types
	check   *check // nil where any value of the type will do
	stored  *check // replaces check for a stored configuration, which may use what another program registers; nil: check
	path    bool   // ${VAR} is expanded
	shape   bool   // model.from sets it
	free    bool   // may differ when a run resumes
	aside   bool   // config print leaves it out if it has its default
	basic   bool   // init writes it; other keys stand in comments
	nth     int    // the table, from 1, of a key of an array; see fields
}

// noUnit is the unit of a number that has none.
const noUnit = "–"

// The order of the schema is the order in which keys are documented and printed.
var schema = []field{
	{key: "run.name", example: `"first-try"`, check: folderName, free: true, basic: true},
	{key: "run.out", example: `"runs/first-try"`, check: pathName, path: true, free: true},
	{key: "run.steps", example: "1000", unit: "steps", check: whole(1, MaxSteps), free: true, basic: true},
	{key: "run.seed", example: "1", unit: noUnit, check: whole(0, math.MaxInt64)},
	{key: "run.eval_every", example: "250", unit: "steps", check: whole(0, maxCount), free: true},
	{key: "run.patience", example: "5", unit: "validations", check: whole(0, maxCount), free: true},
	{key: "run.eval_batches", example: "20", unit: "batches", check: whole(1, maxCount), free: true},
	{key: "run.checkpoint_every", example: "250", unit: "steps", check: whole(0, maxCount), free: true},
	{key: "run.keep", example: "3", unit: "checkpoints", check: whole(0, maxCount), free: true},
	{key: "run.best", example: `"full"`, check: among(BestWeights, BestFull, BestNone), free: true},
	{key: "run.max_skipped_steps", example: "10", unit: "steps", check: whole(0, maxCount), free: true},
	{key: "run.trace_every", example: "100", unit: "steps", check: whole(0, maxCount), free: true},
	{key: "run.log_every", example: "10", unit: "steps", check: whole(1, maxCount), free: true},
	{key: "run.stall_after_s", example: "60.0", unit: "seconds", check: number(0, maxStallS), free: true},
	{key: "run.stats_every", example: "100", unit: "steps", check: whole(0, maxCount), free: true},
	{key: "run.sample_tokens", example: "200", unit: "tokens", check: whole(0, maxSampleTokens), free: true},
	{key: "run.sample_prompt", example: `"Once upon a time"`, check: textUpTo(maxPromptBytes), free: true},
	{key: "run.sample_temperature", example: "0.8", unit: noUnit, check: number(0, maxTemperature), free: true},

	{key: "model.family", example: `"gpt2"`, check: family, stored: lowerCaseName, shape: true, basic: true},
	{key: "model.layers", example: "4", unit: "layers", check: whole(1, MaxLayers), shape: true, basic: true},
	{key: "model.hidden", example: "128", unit: "channels", check: whole(1, MaxHidden), shape: true, basic: true},
	{key: "model.heads", example: "4", unit: "heads", check: whole(1, MaxHeads), shape: true, basic: true},
	{key: "model.kv_heads", example: "2", unit: "heads", check: whole(1, MaxHeads), shape: true},
	{key: "model.head_dim", example: "64", unit: "channels", check: whole(0, MaxHidden), shape: true},
	{key: "model.window", example: "4096", unit: "positions", check: whole(0, MaxContext), shape: true},
	{key: "model.ffn", example: "512", unit: "channels", check: whole(1, MaxFFN), shape: true},
	{key: "model.context", example: "128", unit: "tokens", check: whole(1, MaxContext), shape: true, basic: true},
	{key: "model.dropout", example: "0.1", unit: "probability", check: numberBelow(0, 1)},
	{key: "model.tie_embeddings", example: "true", shape: true},
	{key: "model.rope_theta", example: "10000.0", unit: noUnit, check: number(1, MaxRopeTheta), shape: true},
	{key: "model.vocab", example: "256", unit: "tokens", check: whole(0, MaxVocab), shape: true},
	{key: "model.mtp_layers", example: "1", unit: "layers", check: whole(0, MaxMTPLayers), shape: true},
	{key: "model.mtp_weight", example: "0.3", unit: "factor", check: number(0, maxMTPWeight)},
	{key: "model.experts", example: "8", unit: "experts", check: whole(0, stages.MaxExperts), shape: true},
	{key: "model.experts_per_token", example: "2", unit: "experts", check: whole(0, stages.MaxExperts), shape: true},
	{key: "model.expert_ffn", example: "512", unit: "channels", check: whole(0, MaxFFN), shape: true},
	{key: "model.shared_expert_ffn", example: "512", unit: "channels", check: whole(0, MaxFFN), shape: true},
	{key: "model.first_k_dense_replace", example: "1", unit: "layers", check: whole(0, MaxLayers), shape: true},
	{key: "model.decoder_sparse_step", example: "2", unit: "layers", check: whole(0, MaxLayers), shape: true},
	{key: "model.norm_topk_prob", example: "true", shape: true},
	{key: "model.routed_scaling_factor", example: "2.5", unit: "factor", check: number(0, maxMTPWeight), shape: true},
	{key: "model.n_group", example: "4", unit: "groups", check: whole(0, stages.MaxExperts), shape: true},
	{key: "model.topk_group", example: "2", unit: "groups", check: whole(0, stages.MaxExperts), shape: true},
	{key: "model.aux_loss_weight", example: "0.001", unit: "factor", check: number(0, maxMTPWeight)},
	{key: "model.load_balancing_type", example: `"seq_aux_loss"`, check: among(MicrobatchBalance, SequenceBalance, GlobalBalance)},
	{key: "model.router_bias_update_rate", example: "0.001", unit: noUnit, check: number(0, 1)},
	{key: "model.z_loss_weight", example: "0.001", unit: "factor", check: number(0, maxMTPWeight)},
	{key: "model.input_jitter_eps", example: "0.01", unit: "factor", check: numberBelow(0, 1)},
	{key: "model.q_lora_rank", example: "128", unit: "channels", check: whole(0, MaxHidden), shape: true},
	{key: "model.kv_lora_rank", example: "64", unit: "channels", check: whole(0, MaxHidden), shape: true},
	{key: "model.qk_nope_head_dim", example: "32", unit: "channels", check: whole(0, MaxHidden), shape: true},
	{key: "model.qk_rope_head_dim", example: "16", unit: "channels", check: whole(0, MaxHidden), shape: true},
	{key: "model.v_head_dim", example: "32", unit: "channels", check: whole(0, MaxHidden), shape: true},
	{key: "model.from", example: `"runs/first-try"`, check: textUpTo(maxPathBytes), path: true},
	{key: "model.freeze", example: `["embed", "0-7"]`, check: listUpTo(maxOptions, textUpTo(maxOptionBytes)), aside: true},
	{key: "model.frozen_dtype", example: `"nf4"`, check: among(FrozenAuto, "float32", "bfloat16", FrozenInt8, FrozenNF4), aside: true},
	{key: "model.stack", example: `["input", "dense out=10", "cross_entropy"]`, check: listUpTo(maxOptions, textUpTo(maxOptionBytes)),
		shape: true, aside: true},
	{key: "model.options", example: `["width=3"]`, check: listUpTo(maxOptions, textUpTo(maxOptionBytes)), shape: true, aside: true},

	{key: "adapter.from", example: `"my-adapter"`, check: textUpTo(maxPathBytes), path: true, aside: true},
	{key: "adapter.rank", example: "16", unit: "rows", check: whole(0, stages.MaxAdapterRank), aside: true},
	{key: "adapter.alpha", example: "32.0", unit: "factor", check: number(0, maxAdapterAlpha), aside: true},
	{key: "adapter.dropout", example: "0.05", unit: "probability", check: numberBelow(0, 1), aside: true},
	{key: "adapter.targets", example: `["q_proj", "v_proj"]`, check: listUpTo(maxOptions, textUpTo(maxOptionBytes)), aside: true},
	{key: "adapter.rslora", example: "true", aside: true},
	{key: "adapter.dora", example: "true", aside: true},
	{key: "adapter.rank_pattern", example: `["q_proj=16"]`, check: adapterPatterns(true, whole(1, stages.MaxAdapterRank)), aside: true},
	{key: "adapter.alpha_pattern", example: `["q_proj=32"]`, check: adapterPatterns(false, numberAbove(0, maxAdapterAlpha)), aside: true},
	{key: "adapter.save", example: `["lm_head"]`, check: listUpTo(maxOptions, textUpTo(maxOptionBytes)), aside: true},

	{key: "preference.loss", example: `"dpo"`,
		check: orEmpty(among(stages.DPO, stages.IPO, stages.ORPO, stages.SimPO, stages.KTO)), aside: true},
	{key: "preference.beta", example: "0.1", unit: "factor", check: numberAbove(0, maxPreference), aside: true},
	{key: "preference.label_smoothing", example: "0.1", unit: "probability", check: numberBelow(0, 0.5), aside: true},
	{key: "preference.gamma", example: "0.5", unit: noUnit, check: number(0, maxPreference), aside: true},
	{key: "preference.desirable_weight", example: "1.0", unit: "factor", check: number(0, maxPreference), aside: true},
	{key: "preference.undesirable_weight", example: "1.0", unit: "factor", check: number(0, maxPreference), aside: true},

	{key: "distill.from", example: `"models/large"`, check: textUpTo(maxPathBytes), path: true, aside: true},
	{key: "distill.loss", example: `"reverse_kl"`, check: among(stages.ForwardKL, stages.ReverseKL), aside: true},
	{key: "distill.temperature", example: "2.0", unit: noUnit, check: number(leastSoftening, maxSoftening),
		stored: numberAbove(0, maxSoftening), aside: true},
	{key: "distill.top_k", example: "64", unit: "tokens", check: whole(1, maxTeacherTokens), aside: true},
	{key: "distill.weight", example: "0.5", unit: "fraction", check: numberAbove(0, 1), aside: true},

	{key: "data.train", example: `["data/*.txt"]`, check: patterns, path: true, free: true, basic: true},
	{key: "data.val", example: `["data/val.txt"]`, check: patterns, path: true, free: true},
	{key: "data.val_fraction", example: "0.1", unit: "fraction", check: numberBelow(0, 1)},
	{key: "data.val_split", example: `"blocks"`, check: among("blocks", "tail")},
	{key: "data.split", example: `"train"`, check: textUpTo(maxOptionBytes), free: true, aside: true},
	{key: "data.eval_split", example: `"validation"`, check: textUpTo(maxOptionBytes), free: true, aside: true},
	{key: "data.subset", example: `"default"`, check: textUpTo(maxOptionBytes), free: true, aside: true},
	{key: "data.stream", example: "true", aside: true},
	{key: "data.shuffle_window", example: "10000", unit: "sequences", check: whole(1, maxShuffleWindow), aside: true},
	{key: "data.tokenizer", example: `"bytes"`, check: tokenizerName, path: true},
	{key: "data.format", example: `"text"`, check: format, stored: lowerCaseName},
	{key: "data.chat_template", example: `"chatml"`, check: chatTemplate, path: true, aside: true},
	{key: "data.fields", example: `["prompt=question"]`, check: documentFields, aside: true},
	{key: "data.too_long", example: `"refuse"`, check: among("cut", "refuse"), aside: true},
	{key: "data.packing", example: `"first-fit"`, check: among(PackNone, PackFirstFit, PackSplit), aside: true},
	{key: "data.invalid_utf8", example: `"bytes"`, check: among(UTF8OrRefuse, UTF8OrBytes), free: true, aside: true},
	{key: "data.special_tokens", example: `"tokens"`, check: among(SpecialAsTokens, SpecialAsText)},
	{key: "data.label", example: `"label"`, check: textUpTo(maxPathBytes), aside: true},
	{key: "data.features", example: `["width", "height"]`, check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.targets", example: `["price"]`, check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.labels", example: `["train-labels-idx1-ubyte"]`, check: patterns, path: true, free: true, aside: true},
	{key: "data.val_labels", example: `["t10k-labels-idx1-ubyte"]`, check: patterns, path: true, free: true, aside: true},
	{key: "data.header", example: "true", aside: true},
	{key: "data.separator", example: `";"`, check: textUpTo(maxOptionBytes), aside: true},
	{key: "data.ids", example: `["tokens"]`, check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.varying", example: `["tokens"]`, check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.classes", example: "10", unit: "classes", check: whole(0, MaxVocab), aside: true},
	{key: "data.class_names", example: `["cat", "dog"]`, check: listUpTo(maxEntries, textUpTo(maxPathBytes)), aside: true},
	{key: "data.scale", example: "0.0625", unit: "factor", check: number(0, maxScale), aside: true},

	{key: "data.source.name", example: `"chat"`, check: sourceName},
	{key: "data.source.files", example: `["data/chat.parquet"]`, check: patterns, path: true, free: true},
	{key: "data.source.weight", example: "0.5", unit: noUnit, check: numberAbove(0, maxWeight)},

	{key: "eval.name", example: `"legal"`, check: setName, free: true},
	{key: "eval.files", example: `["data/legal.txt"]`, check: patterns, path: true, free: true},
	{key: "eval.format", example: `"documents"`, check: orEmpty(format), stored: orEmpty(lowerCaseName), free: true},
	{key: "eval.fields", example: `["prompt=question"]`, check: documentFields, free: true},

	{key: "batch.sequences", example: "16", unit: "sequences", check: whole(1, maxSequences), basic: true},
	{key: "batch.microbatch", example: "4", unit: "sequences", check: whole(1, maxSequences)},

	{key: "optimizer.name", example: `"adamw"`, check: among(stages.AdamW, stages.SGD, stages.Muon)},
	{key: "optimizer.lr", example: "0.001", unit: noUnit, check: numberAbove(0, maxLR), free: true, basic: true},
	{key: "optimizer.min_lr", example: "0.0001", unit: noUnit, check: number(0, maxLR), free: true},
	{key: "optimizer.warmup_steps", example: "100", unit: "steps", check: whole(0, MaxSteps), free: true},
	{key: "optimizer.decay", example: `"cosine"`, check: among(decays...), free: true},
	{key: "optimizer.decay_steps", example: "200", unit: "steps", check: whole(0, MaxSteps), free: true},
	{key: "optimizer.points", example: "[[1, 0.0], [100, 0.001], [1000, 0.0001]]", unit: noUnit, check: ratePoints, free: true, aside: true},
	{key: "optimizer.beta1", example: "0.9", unit: "factor", check: numberBelow(0, 1)},
	{key: "optimizer.beta2", example: "0.95", unit: "factor", check: numberBelow(0, 1)},
	{key: "optimizer.eps", example: "1e-8", unit: noUnit, check: number(minEps, 1)},
	{key: "optimizer.momentum", example: "0.9", unit: "factor", check: numberBelow(0, 1)},
	{key: "optimizer.muon_scale", example: `"original"`, check: among(stages.MatchRMSAdamW, stages.OriginalScale), aside: true},
	{key: "optimizer.state_dtype", example: `"bfloat16"`, check: among("float32", "bfloat16", StateInt8), free: true, aside: true},
	{key: "optimizer.weight_decay", example: "0.1", unit: "factor", check: number(0, maxWeightDecay)},
	{key: "optimizer.ema", example: "0.999", unit: "factor", check: numberBelow(0, 1), aside: true},
	{key: "optimizer.clip_norm", example: "1.0", unit: "norm", check: number(0, maxClipNorm)},

	{key: "optimizer.group.match", example: `["model.embed_tokens.weight", "*.mlp.*"]`, check: weightPatterns},
	{key: "optimizer.group.name", example: `"adamw"`, check: orEmpty(among(stages.AdamW, stages.SGD, stages.Muon))},
	{key: "optimizer.group.lr_scale", example: "0.1", unit: "factor", check: number(0, maxLRScale)},
	{key: "optimizer.group.weight_decay", example: "0.0", unit: "factor", check: number(0, maxWeightDecay)},
	{key: "optimizer.group.beta1", example: "0.9", unit: "factor", check: numberBelow(0, 1)},
	{key: "optimizer.group.beta2", example: "0.95", unit: "factor", check: numberBelow(0, 1)},

	{key: "pipeline.stages", example: "2", unit: "stages", check: whole(1, maxStages), free: true, basic: true},
	{key: "pipeline.chunks", example: "2", unit: "chunks", check: whole(1, maxChunks), free: true},
	{key: "pipeline.schedule", example: `"1f1b"`, check: orEmpty(notRemoved(orFile(schedule, tableExtension))),
		stored: orEmpty(orFile(scheduleWord, tableExtension)), free: true},
	{key: "pipeline.microbatch_group_size", example: "2", unit: "microbatches", check: whole(0, maxMicrobatchGroupSize), free: true},
	{key: "pipeline.max_in_flight", example: "8", unit: "outputs", check: whole(0, limitInFlight), free: true},
	{key: "pipeline.defer_weights", example: "2", unit: "microbatches", check: whole(0, maxSequences), free: true},
	{key: "pipeline.post_validation", example: "true", free: true},
	{key: "pipeline.layout", example: `"Ett|ttL"`, check: textUpTo(maxLayoutBytes), free: true},
	{key: "pipeline.wire_dtype", example: `"bfloat16"`, check: among("", "bfloat16")},
	{key: "pipeline.recompute", example: `"full"`, check: among("none", "full", "partial"), free: true},
	{key: "pipeline.recompute_keep", example: "1", unit: "microbatches", check: whole(0, maxSequences), free: true},

	{key: "parallel.tensor", example: "2", unit: "ranks", check: eachWhole(1, maxStages, maxRanks), free: true},
	{key: "parallel.context", example: "2", unit: "ranks", check: whole(1, maxRanks), free: true},
	{key: "parallel.data", example: "2", unit: "replicas", check: whole(1, maxRanks), free: true},
	{key: "parallel.expert", example: "2", unit: "ranks", check: whole(1, maxRanks), free: true},
	{key: "parallel.expert_tensor", example: "1", unit: "ranks", check: whole(0, maxRanks), free: true},
	{key: "parallel.sequence", example: "true", free: true},
	{key: "parallel.zero", example: "1", unit: "level", check: whole(0, 3), free: true},
	{key: "parallel.overlap", example: "false", free: true},
	{key: "parallel.expert_overlap", example: "true", free: true},
	{key: "parallel.edges", example: `"broadcast"`, check: among("auto", "direct", "broadcast", "scatter"), free: true},
	{key: "parallel.order", example: `"tp-cp-pp-dp"`, check: rankOrder, free: true},
	{key: "parallel.world", example: "8", unit: "ranks", check: whole(0, maxRanks), free: true},

	{key: "device.kind", example: `"auto"`, check: deviceWord, free: true},
	{key: "device.ranks", example: `["cuda:0", "cpu"]`, check: listUpTo(maxStages, deviceWord), free: true},
	{key: "device.dtype", example: `"float32"`, check: among("float32", "bfloat16")},
	{key: "device.residual", example: `"float32"`, check: among("float32", "bfloat16")},
	{key: "device.threads", example: "2", unit: "threads", check: whole(0, maxThreads), free: true},
	{key: "device.kernels", example: `"auto"`, check: lowerCaseWord, free: true},
	{key: "device.memory_gib", example: "16.0", unit: "GiB", check: number(0, maxMemoryGiB), free: true},
	{key: "device.tf32", example: "true", free: true},

	{key: "cluster.silence_s", example: "3.0", unit: "seconds", check: number(minSilenceS, maxSilenceS), free: true},
	{key: "cluster.lease_s", example: "30.0", unit: "seconds", check: number(minSilenceS, maxSilenceS), free: true},
	{key: "cluster.max_restarts", example: "10", unit: "restarts", check: whole(0, maxCount), free: true},
	{key: "cluster.edge", example: "true", free: true},
	{key: "cluster.rebalance", example: "false", free: true},
	{key: "cluster.shared_folder", example: `"auto"`, check: among("auto", "off"), free: true},
	{key: "cluster.shadow", example: `"auto"`, check: among("auto", "on", "off"), free: true},
	{key: "cluster.place", example: `["node1", "node2"]`, check: listUpTo(maxStages, textUpTo(maxNameBytes)), free: true},

	{key: "telemetry.metrics", example: `"127.0.0.1:9464"`, check: orEmpty(hostPort), free: true},
	{key: "telemetry.metrics_insecure", example: "true", free: true},
	{key: "telemetry.otlp", example: `"http://localhost:4318"`, check: orEmpty(collector), free: true},
	{key: "telemetry.tensorboard", example: "true", free: true},
}

// schedule, family and format check for names, including those that the program has registered by now.
var (
	schedule = oneOf(scheduler.Schedules)
	family   = orAnothers(oneOf(stages.Families))
	format   = orAnothers(oneOf(func() []string {
		return append([]string{"text", "documents", "uint16", "uint32"}, samples.Formats()...)
	}))
)

// notRemoved names the replacement of a schedule that earlier versions had.
func notRemoved(c *check) *check {
	return &check{c.allows, func(v any) (string, string) {
		problem, hint := c.judge(v)
		if instead := scheduler.Removed(v.(string)); problem != "" && instead != "" {
			return quoted(v.(string)) + " was removed", instead
		}
		return problem, hint
	}}
}

// orAnothers adds that another program may have registered the value: users easily give such a program's configuration to engine
// itself.
func orAnothers(c *check) *check {
	return &check{c.allows + ", or a name that the program registers", func(v any) (string, string) {
		msg, hint := c.judge(v)
		if msg != "" {
			hint += "; or run the program that registers it"
		}
		return msg, hint
	}}
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

// place is where a Config has the value of a row.
type place struct {
	section string
	array   []int // of a slice of tables; nil for a key of a section
	field   []int // in the table, or in the Config
}

var places = fieldPlaces()

func fieldPlaces() map[string]place {
	all := make(map[string]place)
	addPlaces(all, "", nil, reflect.TypeFor[Config]())
	return all
}

// addPlaces adds the places of the fields of a struct, which is a section if it has a name.
func addPlaces(all map[string]place, section string, index []int, t reflect.Type) {
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		name, at := strings.TrimPrefix(section+"."+f.Tag.Get("toml"), "."), slices.Concat(index, f.Index)
		switch {
		case f.Type.Kind() == reflect.Struct:
			addPlaces(all, name, at, f.Type)
		case isTables(f.Type):
			for k := range f.Type.Elem().Fields() {
				all[name+"."+k.Tag.Get("toml")] = place{section: name, array: at, field: k.Index}
			}
		default:
			all[name] = place{section: section, field: at}
		}
	}
}

// isTables reports whether a field is an array of tables.
func isTables(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct
}

// at returns a pointer to the key's value. For a table that c does not have, the value is that of a table without keys.
func (f *field) at(c *Config) any {
	p, v := places[f.row()], reflect.ValueOf(c).Elem()
	if p.array != nil {
		list := v.FieldByIndex(p.array)
		if f.nth >= 1 && f.nth <= list.Len() {
			v = list.Index(f.nth - 1)
		} else {
			v = reflect.New(list.Type().Elem()).Elem()
			v.Set(reflect.ValueOf(arrayOf(p.section).table))
		}
	}
	return v.FieldByIndex(p.field).Addr().Interface()
}

// lookup returns the row of a key, or nil.
func lookup(key string) *field {
	if i := slices.Index(keys, key); i >= 0 {
		return &schema[i]
	}
	return lookupInTable(key)
}

// section returns the key's section: "eval" for "eval.name" and for "eval[1].name".
func (f *field) section() string {
	section, _, _ := strings.Cut(f.key[:strings.LastIndexByte(f.key, '.')], "[")
	return section
}

func (f *field) name() string { return f.key[strings.LastIndexByte(f.key, '.')+1:] }
