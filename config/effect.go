package config

import (
	"slices"

	"github.com/troupe-ml/troupe/internal/base/points"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// idleKey is a key that has no effect with some value of another key.
type idleKey struct {
	key   string
	under string             // the other key
	idle  func(*Config) bool // reports that key has no effect
	why   string             // the reason, after the other key's value in the message; may be empty
	hint  string
}

// The ends of what idleKeys says of keys that only some families with experts have.
const (
	noTrait   = ", whose experts have no such setting"
	noLatent  = ", which has no latent attention"
	traitHint = `, or set family = "deepseek_v3"`
)

// idleKeys lists keys that would do nothing. A user who gives such a key expects an effect, so it is
// an error, unless it has its default: a printed configuration gives every key.
//
// Cases that depend on the size of numbers are not here, such as a decay that starts after
// the last step: users often shorten a run with --set run.steps to try it. Neither is run.patience without
// run.eval_every: they turn validation off in a config that has it. package plan warns of these.
var idleKeys = []idleKey{
	{"run.sample_prompt", "run.sample_tokens", func(c *Config) bool { return c.Run.SampleTokens == 0 && c.Run.SamplePrompt != "" },
		"", "leave sample_prompt out, or set sample_tokens"},
	{"run.sample_temperature", "run.sample_tokens", func(c *Config) bool { return c.Run.SampleTokens == 0 && c.Run.SampleTemperature > 0 },
		"", "leave sample_temperature out, or set sample_tokens"},
	{"model.rope_theta", "model.family", inFamily("gpt2", "mlp", "stack"),
		", which has no rotary positions", `leave rope_theta out, or set family = "llama"`},
	{"model.head_dim", "model.family", inFamily("gpt2", "mlp", "stack"),
		", whose heads have a width of hidden/heads", `leave head_dim out, or set family = "llama"`},
	{"model.window", "model.family", func(c *Config) bool {
		return inFamily("mlp", "stack")(c) || c.Language() && !stages.HasWindow(c.Model.Family)
	},
		", which has no sliding window", `leave window out, or set family = "mistral"`},
	{"model.mtp_weight", "model.mtp_layers", func(c *Config) bool { return c.Model.MTPLayers == 0 },
		"", "leave mtp_weight out, or set mtp_layers"},
	{"model.aux_loss_weight", "model.experts", func(c *Config) bool { return c.Model.Experts == 0 },
		"", "leave aux_loss_weight out, or set experts"},
	{"model.load_balancing_type", "model.experts", func(c *Config) bool { return c.Model.Experts == 0 },
		"", "leave load_balancing_type out, or set experts"},
	{"model.z_loss_weight", "model.experts", func(c *Config) bool { return c.Model.Experts == 0 },
		"", "leave z_loss_weight out, or set experts"},
	{"model.input_jitter_eps", "model.experts", func(c *Config) bool { return c.Model.Experts == 0 },
		"", "leave input_jitter_eps out, or set experts"},
	{"model.shared_expert_ffn", "model.family", withoutTrait(func(t stages.ExpertTraits) bool { return t.Shared },
		func(m Model) bool { return m.SharedExpertFFN != 0 }), noTrait, "leave shared_expert_ffn out" + traitHint},
	{"model.first_k_dense_replace", "model.family", withoutTrait(func(t stages.ExpertTraits) bool { return t.DenseFirst },
		func(m Model) bool { return m.FirstKDenseReplace != 0 }), noTrait, "leave first_k_dense_replace out" + traitHint},
	{"model.decoder_sparse_step", "model.family", withoutTrait(func(t stages.ExpertTraits) bool { return t.SparseStep },
		func(m Model) bool { return m.DecoderSparseStep > 1 }), noTrait, `leave decoder_sparse_step out, or set family = "qwen3_moe"`},
	{"model.norm_topk_prob", "model.family", func(c *Config) bool {
		t := stages.ExpertTraitsOf(c.Model.Family)
		return !t.Norms && c.Model.NormTopKProb != t.UsuallyNormed
	}, noTrait, `leave norm_topk_prob out, or set family = "qwen3_moe"`},
	{"model.routed_scaling_factor", "model.family", withoutTrait(func(t stages.ExpertTraits) bool { return t.Scales },
		func(m Model) bool { return m.RoutedScalingFactor != 1 && m.RoutedScalingFactor != 0 }), noTrait,
		"leave routed_scaling_factor out" + traitHint},
	{"model.n_group", "model.family", withoutTrait(func(t stages.ExpertTraits) bool { return t.Groups },
		func(m Model) bool { return m.NGroup != 0 }), noTrait, "leave n_group out" + traitHint},
	{"model.router_bias_update_rate", "model.family", withoutTrait(func(t stages.ExpertTraits) bool { return t.Bias },
		func(m Model) bool { return m.RouterBiasUpdateRate != 0 }), ", whose routers have no bias",
		"leave router_bias_update_rate out" + traitHint},
	{"model.q_lora_rank", "model.family", withoutLatent(func(m Model) int { return m.QLoRARank }), noLatent,
		"leave q_lora_rank out" + traitHint},
	{"model.kv_lora_rank", "model.family", withoutLatent(func(m Model) int { return m.KVLoRARank }), noLatent,
		"leave kv_lora_rank out" + traitHint},
	{"model.qk_nope_head_dim", "model.family", withoutLatent(func(m Model) int { return m.QKNopeHeadDim }), noLatent,
		"leave qk_nope_head_dim out" + traitHint},
	{"model.qk_rope_head_dim", "model.family", withoutLatent(func(m Model) int { return m.QKRopeHeadDim }), noLatent,
		"leave qk_rope_head_dim out" + traitHint},
	{"model.v_head_dim", "model.family", withoutLatent(func(m Model) int { return m.VHeadDim }), noLatent,
		"leave v_head_dim out" + traitHint},

	{"model.hidden", "model.family", inFamily("stack"), "", "leave hidden out: each layer of the stack has its own width"},
	{"model.layers", "model.family", inFamily("stack"), "", "leave layers out: the stack lists the layers"},
	{"model.dropout", "model.family", inFamily("stack"), "", "leave dropout out: use a dropout layer in the stack"},
	{"model.heads", "model.family", inFamily("mlp", "stack"), "", "leave heads out"},
	{"model.kv_heads", "model.family", func(c *Config) bool { return inFamily("mlp", "stack")(c) && c.IsSet("model.kv_heads") }, "",
		"leave kv_heads out"},
	{"model.ffn", "model.family", func(c *Config) bool { return inFamily("mlp", "stack")(c) && c.IsSet("model.ffn") }, "", "leave ffn out"},
	{"model.tie_embeddings", "model.family", func(c *Config) bool { return inFamily("mlp", "stack")(c) && c.IsSet("model.tie_embeddings") },
		"", "leave tie_embeddings out"},
	{"model.mtp_layers", "model.family", inFamily("mlp", "stack"), "", "leave mtp_layers out"},
	{"model.stack", "model.family", func(c *Config) bool { return c.Model.Family != "stack" && len(c.Model.Stack) > 0 }, "",
		`leave stack out, or set family = "stack"`},
	{"model.options", "model.family", func(c *Config) bool {
		return (c.Language() || inFamily("mlp", "stack")(c)) && len(c.Model.Options) > 0
	}, "", "leave options out"},
	{"model.frozen_dtype", "model.freeze", func(c *Config) bool { return !c.Freezes() && c.Model.FrozenDType != FrozenAuto },
		": all weights are trained", "leave frozen_dtype out, or set adapter.rank"},
	{"model.vocab", "data.format", notText, ": the data has no tokens", "leave vocab out"},

	{"adapter.alpha", "adapter.rank", noAdapter, adapterIsOff, adapterHint},
	{"adapter.dropout", "adapter.rank", noAdapter, adapterIsOff, adapterHint},
	{"adapter.targets", "adapter.rank", noAdapter, adapterIsOff, adapterHint},
	{"adapter.rslora", "adapter.rank", noAdapter, adapterIsOff, adapterHint},
	{"adapter.dora", "adapter.rank", noAdapter, adapterIsOff, adapterHint},
	{"adapter.rank_pattern", "adapter.rank", noAdapter, adapterIsOff, adapterHint},
	{"adapter.alpha_pattern", "adapter.rank", noAdapter, adapterIsOff, adapterHint},
	{"adapter.save", "adapter.rank", noAdapter, adapterIsOff, adapterHint},

	{"preference.beta", "preference.loss", func(c *Config) bool { return c.Preference.Loss == "" }, preferenceIsOff, preferenceHint},
	{"preference.label_smoothing", "preference.loss", notLoss(stages.DPO, stages.SimPO), "",
		`leave label_smoothing out, or set loss = "dpo"`},
	{"preference.gamma", "preference.loss", notLoss(stages.SimPO), "", `leave gamma out, or set loss = "simpo"`},
	{"preference.desirable_weight", "preference.loss", notLoss(stages.KTO), "", `leave desirable_weight out, or set loss = "kto"`},
	{"preference.undesirable_weight", "preference.loss", notLoss(stages.KTO), "", `leave undesirable_weight out, or set loss = "kto"`},

	{"distill.temperature", "distill.from", noTeacher, distillIsOff, distillHint},
	{"distill.loss", "distill.from", noTeacher, distillIsOff, distillHint},
	{"distill.top_k", "distill.from", noTeacher, distillIsOff, distillHint},
	{"distill.weight", "distill.from", noTeacher, distillIsOff, distillHint},

	{"data.tokenizer", "data.format", notText, ", which is not text", "leave tokenizer out"},
	{"data.val_split", "data.format", notText, ": the seed chooses the validation samples", "leave val_split out"},
	{"data.label", "data.format", isText, "", ofSamples("label")},
	{"data.features", "data.format", isText, "", ofSamples("features")},
	{"data.targets", "data.format", isText, "", ofSamples("targets")},
	{"data.labels", "data.format", isText, "", ofSamples("labels")},
	{"data.val_labels", "data.format", isText, "", ofSamples("val_labels")},
	{"data.header", "data.format", isText, "", ofSamples("header")},
	{"data.separator", "data.format", isText, "", ofSamples("separator")},
	{"data.ids", "data.format", isText, "", ofSamples("ids")},
	{"data.varying", "data.format", isText, "", ofSamples("varying")},
	{"data.classes", "data.format", isText, "", ofSamples("classes")},
	{"data.class_names", "data.format", isText, "", ofSamples("class_names")},
	{"data.scale", "data.format", isText, "", ofSamples("scale")},

	{"data.val_split", "data.val", func(c *Config) bool { return len(c.Data.Val) > 0 },
		": the validation text comes from there", "leave val_split out, or set val = []"},

	// If Go code changed lr, min_lr was not given.
	{"optimizer.min_lr", "optimizer.decay", func(c *Config) bool { return c.Optimizer.Decay == "constant" && c.IsSet("optimizer.min_lr") },
		": the learning rate stays at lr", `leave min_lr out, or set decay = "cosine" or "linear"`},
	{"optimizer.points", "optimizer.decay", func(c *Config) bool {
		return c.Optimizer.Decay != stages.Points && len(c.Optimizer.Points) > 0
	}, "", `leave points out, or set decay = "points"`},
	{"optimizer.lr", "optimizer.points", func(c *Config) bool {
		return c.followsPoints() && c.Optimizer.LR != points.Peak(c.Optimizer.Points)
	}, ": its largest rate is the peak", "leave lr out"},
	{"optimizer.min_lr", "optimizer.points", func(c *Config) bool {
		return c.followsPoints() && c.Optimizer.MinLR != points.Least(c.Optimizer.Points)
	}, ": its smallest rate is the floor", "leave min_lr out"},
	{"optimizer.warmup_steps", "optimizer.points", func(c *Config) bool { return c.followsPoints() && c.Optimizer.WarmupSteps != 0 },
		": it has all rates", "leave warmup_steps out, and begin points with the warm-up"},
	{"optimizer.beta1", "optimizer.name", isSGD, "", `leave beta1 out, or set name = "adamw"`},
	{"optimizer.beta2", "optimizer.name", isSGD, "", `leave beta2 out, or set name = "adamw"`},
	{"optimizer.eps", "optimizer.name", isSGD, "", `leave eps out, or set name = "adamw"`},
	{"optimizer.momentum", "optimizer.name", func(c *Config) bool { return !c.updatesBy(stages.SGD) && !c.Muon() },
		": use beta1", `leave momentum out, or set name = "sgd"`},
	{"optimizer.muon_scale", "optimizer.name", func(c *Config) bool { return !c.Muon() }, "",
		`leave muon_scale out, or set name = "muon"`},
	{"optimizer.state_dtype", "optimizer.momentum", func(c *Config) bool {
		return isSGD(c) && c.Optimizer.Momentum == 0 && c.NarrowState()
	}, ": there is no state", "leave state_dtype out, or set momentum"},

	{"pipeline.recompute_keep", "pipeline.recompute", func(c *Config) bool { return c.Pipeline.Recompute != "partial" },
		"", `set recompute = "partial" or leave recompute_keep out`},
	{"pipeline.microbatch_group_size", "pipeline.schedule", (*Config).HasOwnTable, ": the table has the order of microbatches",
		"leave microbatch_group_size out"},
	{"pipeline.defer_weights", "pipeline.schedule", (*Config).HasOwnTable, ": the table has the order of weight gradients",
		"leave defer_weights out"},
	{"pipeline.max_in_flight", "pipeline.schedule", func(c *Config) bool { return c.Pipeline.Schedule != scheduler.Auto },
		": only auto reads it", `set schedule = "auto" or leave max_in_flight out`},

	{"pipeline.wire_dtype", "model.family", func(c *Config) bool { return c.Pipeline.WireDType != "" && c.Model.From == "" && !c.Language() },
		": its layers choose the types that they send", "leave wire_dtype out"},
	{"pipeline.wire_dtype", "device.residual", func(c *Config) bool {
		return c.Pipeline.WireDType != "" && c.Language() && c.Device.Residual == "bfloat16"
	},
		": chunks send bfloat16 already", "leave wire_dtype out"},

	{"parallel.sequence", "parallel.tensor", func(c *Config) bool { return c.Parallel.Sequence && slices.Max(c.Parallel.Tensor) == 1 },
		": no ranks share a layer", "leave sequence out, or set tensor"},
	{"parallel.edges", "parallel.tensor", func(c *Config) bool { return c.Parallel.Edges != "auto" && slices.Max(c.Parallel.Tensor) == 1 },
		": no stage has several ranks", "leave edges out, or set tensor"},
	{"parallel.edges", "parallel.sequence", func(c *Config) bool {
		return c.Parallel.Edges != "auto" && c.Parallel.Sequence && slices.Max(c.Parallel.Tensor) > 1
	}, ": each rank sends its own positions", "leave edges out, or set sequence = false"},
	{"parallel.zero", "parallel.data", func(c *Config) bool { return c.Parallel.Zero > 0 && c.Parallel.Data*c.Parallel.Context == 1 },
		" and parallel.context = 1: there is only one replica", "leave zero out, or set data or context"},
	{"parallel.overlap", "parallel.data", func(c *Config) bool {
		p := c.Parallel
		return !p.Overlap && p.Data == 1 && p.Context == 1 && slices.Max(p.Tensor) == 1
	}, ", parallel.context = 1 and parallel.tensor = 1: there are no collectives", "leave overlap out"},
	{"parallel.expert_overlap", "parallel.expert", func(c *Config) bool { return c.Parallel.ExpertOverlap && c.Parallel.Expert == 1 },
		": no tokens travel", "leave expert_overlap out, or set expert"},
	{"parallel.expert_overlap", "parallel.overlap", func(c *Config) bool {
		p := c.Parallel
		return p.ExpertOverlap && p.Expert > 1 && !p.Overlap
	}, ": ranks wait for each collective", "leave expert_overlap out, or set overlap = true"},
	{"parallel.order", "parallel.data", func(c *Config) bool {
		p := c.Parallel
		return p.Data == 1 && p.Context == 1 && slices.Max(p.Tensor) == 1 && p.Order != "tp-pp-dp" // an earlier default
	}, ", parallel.context = 1 and parallel.tensor = 1: there is one rank for each stage", "leave order out"},

	{"device.kind", "device.ranks", func(c *Config) bool { return len(c.Device.Ranks) > 0 },
		", which has the device of each stage", "leave kind out, or set ranks = []"},
	{"optimizer.decay_steps", "optimizer.decay", func(c *Config) bool {
		return !usesDecaySteps(c.Optimizer.Decay) && c.Optimizer.DecaySteps > 0
	},
		"", `leave decay_steps out, or set decay = "wsd", "cosine_restarts" or "inverse_sqrt"`},
	// As min_lr: Go code may have changed dtype.
	{"device.residual", "device.dtype", func(c *Config) bool {
		return c.Device.DType == "float32" && c.Device.Residual == "bfloat16" && c.IsSet("device.residual")
	},
		": no number is bfloat16", `leave residual out, or set dtype = "bfloat16"`},
	{"device.residual", "model.family", func(c *Config) bool {
		return c.Model.From == "" && !c.Language() && c.Device.Residual != c.Device.DType && c.IsSet("device.residual")
	},
		", which has no residual stream", "leave residual out"},
	{"data.invalid_utf8", "data.format", func(c *Config) bool {
		return (!c.Text() || c.IDBytes() > 0 || c.Documents()) && c.Data.InvalidUTF8 != UTF8OrRefuse
	}, "", `leave invalid_utf8 out, or set format = "text"`},
	{"data.special_tokens", "data.format", func(c *Config) bool {
		return (!c.Text() || c.IDBytes() > 0) && c.Data.SpecialTokens != SpecialAsTokens
	}, "", `leave special_tokens out, or set format = "documents" or "text"`},
	{"data.chat_template", "data.format", func(c *Config) bool { return !c.Documents() && c.Data.ChatTemplate != "" }, "",
		`leave chat_template out, or set format = "documents"`},
	{"data.fields", "data.format", func(c *Config) bool { return !c.Documents() && len(c.Data.Fields) > 0 }, "",
		`leave fields out, or set format = "documents"`},
	{"data.split", "data.format", func(c *Config) bool { return !c.Documents() && c.Data.Split != "train" }, "",
		`leave split out, or set format = "documents"`},
	{"data.eval_split", "data.format", func(c *Config) bool { return !c.Documents() && c.Data.EvalSplit != "" }, "",
		`leave eval_split out, or set format = "documents"`},
	{"data.subset", "data.format", func(c *Config) bool { return !c.Documents() && c.Data.Subset != "" }, "",
		`leave subset out, or set format = "documents"`},
	{"data.stream", "data.format", func(c *Config) bool { return !c.Documents() && c.Data.Stream }, "",
		`leave stream out, or set format = "documents"`},
	{"data.shuffle_window", "data.stream", func(c *Config) bool {
		return !c.Data.Stream && c.Data.ShuffleWindow != defaultShuffleWindow
	}, ": all of the data is shuffled", "leave shuffle_window out, or set stream = true"},
	{"data.too_long", "data.format", func(c *Config) bool { return !c.Documents() && c.Data.TooLong != "cut" }, "",
		`leave too_long out, or set format = "documents"`},
	{"data.packing", "data.format", func(c *Config) bool { return !c.Documents() && c.Data.Packing != PackNone }, "",
		`leave packing out, or set format = "documents"`},
	{"data.packing", "model.family", func(c *Config) bool { return c.Model.From == "" && !c.Language() && c.Data.Packing != PackNone },
		", which is not a language model", "leave packing out"},
	{"data.too_long", "data.packing", func(c *Config) bool { return c.Data.Packing == PackSplit && c.Data.TooLong != "cut" },
		": no document is too long", "leave too_long out"},
	{"device.threads", "device.kind", func(c *Config) bool { return len(c.Device.Ranks) == 0 && !c.computesOn(cpus...) },
		": no rank computes on the CPU", "leave threads out"},
	{"device.threads", "device.ranks", func(c *Config) bool { return len(c.Device.Ranks) > 0 && !c.computesOn(cpus...) },
		": no rank computes on the CPU", "leave threads out"},
	{"device.kernels", "device.kind", func(c *Config) bool { return len(c.Device.Ranks) == 0 && !c.computesOn(cpus...) },
		": no rank computes on the CPU", "leave kernels out"},
	{"device.kernels", "device.ranks", func(c *Config) bool { return len(c.Device.Ranks) > 0 && !c.computesOn(cpus...) },
		": no rank computes on the CPU", "leave kernels out"},
	{"device.tf32", "device.kind", func(c *Config) bool { return len(c.Device.Ranks) == 0 && !c.computesOn("cuda") },
		": the CPU has no TensorFloat-32", `set it to "cuda", or leave tf32 out`},
	{"device.tf32", "device.ranks", func(c *Config) bool { return len(c.Device.Ranks) > 0 && !c.computesOn("cuda") },
		": the CPU has no TensorFloat-32", `set it to "cuda", or leave tf32 out`},
	{"device.tf32", "device.dtype", func(c *Config) bool { return c.Device.DType == "bfloat16" && c.computesOn("cuda") },
		": no product has float32 inputs", "leave tf32 out"},
	{"telemetry.metrics_insecure", "telemetry.metrics", func(c *Config) bool {
		return c.Telemetry.MetricsInsecure &&
			c.Telemetry.Metrics == ""
	},
		": metrics are off", "leave metrics_insecure out, or set metrics"},
}

// cpus are the kinds that may compute on the CPU.
var cpus = []string{"cpu", "auto"}

func isSGD(c *Config) bool { return !c.updatesBy(stages.AdamW) && !c.updatesBy(stages.Muon) }

// computesOn reports whether a stage's device has one of the kinds.
func (c *Config) computesOn(kinds ...string) bool {
	for rank := range max(1, len(c.Device.Ranks)) {
		if slices.Contains(kinds, c.Device.KindOf(rank)) {
			return true
		}
	}
	return false
}

// effects reports keys that were given and have no effect.
func (c *checker) effects() {
	for _, k := range idleKeys {
		if c.clean(k.key, k.under) && k.without(c.Config) {
			c.disagree(k.key, k.under, "has no effect with "+c.say(k.under)+k.why, k.hint)
		}
	}
}

// without reports whether the key has another value than its default, and no effect.
func (k idleKey) without(c *Config) bool {
	f := lookup(k.key)
	return !c.isOpen(f) && !c.isOpen(lookup(k.under)) && k.idle(c) && render(f.load(c)) != render(c.usual(f))
}

// dropIdle gives keys without effect their defaults.
func (c *Config) dropIdle() {
	for _, k := range idleKeys {
		if f := lookup(k.key); k.without(c) {
			f.store(c, c.usual(f))
		}
	}
}

// usual returns the value that a key has if it is not given.
func (c *Config) usual(f *field) any {
	d, plain := c.clone(), &Config{}
	plain.setDefaults()
	f.store(d, f.load(plain))
	delete(d.given, f.key)
	d.Model.From = "" // with it, the keys of the shape would have no value
	d.resolve()
	return f.load(d)
}

func isText(c *Config) bool  { return c.Text() }
func notText(c *Config) bool { return !c.Text() }

func ofSamples(key string) string {
	return "leave " + key + ` out, or set format = "csv", "idx" or "jsonl"`
}

// inFamily reports whether the family is one of these.
func inFamily(names ...string) func(*Config) bool {
	return func(c *Config) bool { return slices.Contains(names, c.Model.Family) }
}
