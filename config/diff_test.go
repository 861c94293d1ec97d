package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// other holds, for each key, a --set that changes it alone.
var other = map[string]string{
	"run.name": "x", "run.out": "x", "run.steps": "2000", "run.seed": "2", "run.eval_every": "1", "run.patience": "1", "run.eval_batches": "1",
	"run.checkpoint_every": "1", "run.keep": "1", "run.best": `"full"`, "run.max_skipped_steps": "3", "run.trace_every": "1",
	"run.log_every":     "1",
	"run.stall_after_s": "1",
	"run.stats_every":   "1", "run.sample_tokens": "1", "run.sample_prompt": "x", "run.sample_temperature": "0.5",
	"model.family": "llama", "model.layers": "5", "model.hidden": "256", "model.heads": "2", "model.kv_heads": "2",
	"model.head_dim": "16", "model.window": "16", "model.ffn": "100", "model.context": "64", "model.dropout": "0.5",
	"model.tie_embeddings": "false",
	"model.rope_theta":     "500000", "model.vocab": "300", "model.mtp_layers": "1", "model.mtp_weight": "0.1", "model.from": "x",
	"model.experts": "16", "model.experts_per_token": "3", "model.expert_ffn": "64", "model.aux_loss_weight": "0.1",
	"model.shared_expert_ffn": "128", "model.first_k_dense_replace": "2", "model.decoder_sparse_step": "2", "model.norm_topk_prob": "false",
	"model.routed_scaling_factor": "2.5", "model.n_group": "4", "model.topk_group": "1", "model.load_balancing_type": "seq_aux_loss",
	"model.router_bias_update_rate": "0.1", "model.z_loss_weight": "0.1", "model.input_jitter_eps": "0.1",
	"model.q_lora_rank": "9", "model.kv_lora_rank": "9", "model.qk_nope_head_dim": "9", "model.qk_rope_head_dim": "8",
	"model.v_head_dim": "9",
	"model.freeze":     "embed", "model.frozen_dtype": "nf4",
	"adapter.rank": "8", "adapter.from": "x", "adapter.alpha": "7", "adapter.dropout": "0.5", "adapter.targets": "q_proj",
	"adapter.rslora": "true",
	"adapter.dora":   "true", "adapter.rank_pattern": "q_proj=3", "adapter.alpha_pattern": "q_proj=3", "adapter.save": "lm_head",
	"preference.loss": "dpo", "preference.beta": "0.5", "preference.label_smoothing": "0.1", "preference.gamma": "0.7",
	"preference.desirable_weight": "2", "preference.undesirable_weight": "2",
	"distill.from": "x", "distill.loss": "reverse_kl", "distill.temperature": "2", "distill.top_k": "8", "distill.weight": "0.5",
	"model.stack": "mse", "model.options": "", // a family takes them that a program registers
	"data.label": "y", "data.features": "y", "data.targets": "y", "data.labels": "y", "data.val_labels": "y", "data.header": "false",
	"data.separator": ";",
	"data.ids":       "y", "data.varying": "y", "data.classes": "3", "data.class_names": "y", "data.scale": "0.5",
	"data.train": "x", "data.val": "x", "data.val_fraction": "0.2", "data.val_split": "tail", "data.tokenizer": "chars",
	"data.format": "uint16", "data.chat_template": "chatml", "data.fields": "prompt=q", "data.too_long": "refuse", "data.packing": "first-fit",
	"data.split": "test", "data.eval_split": "test", "data.subset": "en", "data.stream": "true", "data.shuffle_window": "100",
	"data.invalid_utf8": "bytes", "data.special_tokens": "text",
	"batch.sequences": "8", "batch.microbatch": "2",
	"optimizer.name": "sgd", "optimizer.lr": "0.01", "optimizer.min_lr": "0", "optimizer.warmup_steps": "5",
	"optimizer.decay": "linear", "optimizer.decay_steps": "3", "optimizer.points": "[[1, 0.5], [8, 0.25]]",
	"optimizer.beta1": "0", "optimizer.beta2": "0", "optimizer.eps": "1e-6",
	"optimizer.momentum": "0", "optimizer.muon_scale": "original", "optimizer.state_dtype": "int8",
	"optimizer.ema": "0.5", "optimizer.weight_decay": "0", "optimizer.clip_norm": "0",
	"pipeline.stages": "2", "pipeline.chunks": "2", "pipeline.schedule": "gpipe", "pipeline.microbatch_group_size": "4",
	"pipeline.max_in_flight": "3", "pipeline.defer_weights": "1", "pipeline.post_validation": "true", "pipeline.layout": "x",
	"pipeline.recompute": "full", "pipeline.recompute_keep": "1",
	"parallel.tensor": "2", "parallel.context": "2", "parallel.data": "2", "parallel.expert": "", "parallel.expert_tensor": "1",
	"parallel.sequence": "", "parallel.zero": "",
	"pipeline.wire_dtype": "bfloat16", "parallel.overlap": "", "parallel.expert_overlap": "",
	"parallel.edges": "", "parallel.order": "", "parallel.world": "1",
	"device.kind": "cpu", "device.ranks": "cpu", "device.dtype": "", "device.residual": "", "device.threads": "2", "device.kernels": "go",
	"device.memory_gib": "2", "device.tf32": "true",
	"cluster.silence_s": "1", "cluster.lease_s": "20", "cluster.max_restarts": "1", "cluster.edge": "true", "cluster.shared_folder": "off",
	"cluster.shadow":    "on",
	"cluster.rebalance": "false",
	"cluster.place":     "x",
	"telemetry.metrics": "127.0.0.1:9464", "telemetry.metrics_insecure": "true", "telemetry.otlp": "http://localhost:4318",
	"telemetry.tensorboard": "true",
}

// mayDiffer lists the keys that a resumed run may change.
var mayDiffer = []string{"data.invalid_utf8", "data.split", "data.eval_split", "data.subset",
	"run.name", "run.out", "run.steps", "run.eval_every", "run.patience", "run.eval_batches", "run.checkpoint_every", "run.keep", "run.best",
	"run.max_skipped_steps",
	"optimizer.state_dtype", "optimizer.points",
	"run.trace_every", "run.log_every", "run.stall_after_s", "run.stats_every", "run.sample_tokens", "run.sample_prompt",
	"run.sample_temperature", "data.train",
	"data.val", "data.labels", "data.val_labels", "data.invalid_utf8",
	"pipeline.stages", "pipeline.chunks", "pipeline.schedule", "pipeline.microbatch_group_size", "pipeline.max_in_flight",
	"pipeline.defer_weights", "pipeline.post_validation", "pipeline.layout",
	"pipeline.recompute", "pipeline.recompute_keep",
	"parallel.tensor", "parallel.context", "parallel.data", "parallel.expert", "parallel.expert_tensor", "parallel.sequence",
	"parallel.zero", "parallel.overlap", "parallel.expert_overlap", "parallel.edges", "parallel.order", "parallel.world",
	"device.kind", "device.ranks", "device.dtype", "device.residual", "device.threads", "device.kernels", "device.memory_gib", "device.tf32",
	"optimizer.lr", "optimizer.min_lr", "optimizer.warmup_steps", "optimizer.decay", "optimizer.decay_steps",
	"cluster.silence_s", "cluster.lease_s", "cluster.max_restarts", "cluster.edge", "cluster.rebalance",
	"cluster.shared_folder", "cluster.shadow", "cluster.place",
	"telemetry.metrics", "telemetry.metrics_insecure", "telemetry.otlp", "telemetry.tensorboard",
}

func TestDiffAndResume(t *testing.T) {
	for _, key := range keys {
		if arrayOf(lookup(key).section()) != nil {
			continue // arrays_test.go
		}
		to, ok := other[key]
		if !ok {
			t.Errorf("no other value for %s", key)
		}
		if to == "" { // there is only one value so far
			continue
		}
		// Whatever follows from the key stands fixed, so that it alone differs.
		base := parse(t, "data.train = ['a.txt']")
		if key == "model.family" || key == "model.kv_heads" {
			base = parse(t, "data.train = ['a.txt']", "model.family=llama", "model.kv_heads=4")
			to = map[string]string{"model.family": "gpt2", "model.kv_heads": "2"}[key]
		}
		sets := []string{key + "=" + to}
		switch key {
		case "run.sample_prompt", "run.sample_temperature":
			sets = append(sets, "run.sample_tokens=1")
		case "model.heads":
			sets = append(sets, "model.kv_heads=2")
		case "model.stack":
			base = parse(t, "data.train = ['a.txt']\nmodel = {family = 'stack', stack = ['input']}")
		case "data.label", "data.features", "data.targets", "data.labels", "data.val_labels", "data.header", "data.separator", "data.ids",
			"data.varying", "data.classes", "data.class_names", "data.scale":
			base = parse(t, "data = {train = ['a.csv'], format = 'csv'}\nmodel = {family = 'mlp'}")
		case "data.too_long", "data.chat_template", "data.fields", "data.packing",
			"data.split", "data.eval_split", "data.subset", "data.stream":
			base = parse(t, "data.train = ['a.jsonl']", "data.format=documents")
		case "distill.from":
			base = parse(t, "data.train = ['a.jsonl']", "data.format=documents")
		case "distill.loss", "distill.temperature", "distill.top_k", "distill.weight":
			base = parse(t, "data.train = ['a.jsonl']", "data.format=documents", "distill.from=y")
		case "preference.loss", "preference.beta", "preference.label_smoothing":
			base = parse(t, "data.train = ['a.jsonl']", "data.format=documents", "batch.microbatch=4")
			if key != "preference.loss" {
				base = parse(t, "data.train = ['a.jsonl']", "data.format=documents", "batch.microbatch=4", "preference.loss=dpo")
			}
		case "preference.gamma":
			base = parse(t, "data.train = ['a.jsonl']", "data.format=documents", "preference.loss=simpo")
		case "preference.desirable_weight", "preference.undesirable_weight":
			base = parse(t, "data.train = ['a.jsonl']", "data.format=documents", "preference.loss=kto")
		case "adapter.from":
			base = parse(t, "data.train = ['a.txt']", "model.from=x")
		case "adapter.rank":
			base = parse(t, "data.train = ['a.txt']", "model.from=x")
			sets = append(sets, "adapter.alpha=8")
		case "adapter.alpha", "adapter.dropout", "adapter.targets", "adapter.rslora", "adapter.dora", "adapter.rank_pattern",
			"adapter.alpha_pattern", "adapter.save", "model.frozen_dtype":
			base = parse(t, "data.train = ['a.txt']", "model.from=x", "adapter.rank=4")
		case "data.shuffle_window":
			base = parse(t, "data.train = ['a.jsonl']", "data.format=documents", "data.stream=true")
		case "data.val":
			base = parse(t, "data.train = ['a.txt']", "data.val=y")
		case "pipeline.recompute_keep":
			sets = append(sets, "pipeline.recompute=partial")
		case "device.tf32":
			sets = append(sets, "device.kind=cuda")
		case "model.rope_theta", "model.head_dim":
			base = parse(t, "data.train = ['a.txt']", "model.family=llama")
		case "model.window":
			base = parse(t, "data.train = ['a.txt']", "model.family=mistral")
		case "model.shared_expert_ffn", "model.first_k_dense_replace", "model.routed_scaling_factor", "model.router_bias_update_rate",
			"model.q_lora_rank", "model.kv_lora_rank", "model.qk_nope_head_dim", "model.qk_rope_head_dim", "model.v_head_dim":
			base = parse(t, "data.train = ['a.txt']", "model.family=deepseek_v3", "model.expert_ffn=64")
		case "model.n_group", "model.topk_group":
			base = parse(t, "data.train = ['a.txt']", "model.family=deepseek_v3", "model.n_group=2", "model.topk_group=2")
		case "model.experts", "model.experts_per_token", "model.expert_ffn", "model.aux_loss_weight", "model.decoder_sparse_step",
			"model.norm_topk_prob", "model.load_balancing_type", "model.z_loss_weight", "model.input_jitter_eps":
			base = parse(t, "data.train = ['a.txt']", "model.family=qwen3_moe")
		case "model.mtp_weight":
			base = parse(t, "data.train = ['a.txt']", "model.mtp_layers=1")
		case "optimizer.decay_steps":
			base = parse(t, "data.train = ['a.txt']", "optimizer.decay=wsd")
		case "optimizer.points":
			base = parse(t, "data.train = ['a.txt']", "optimizer.decay=points", "optimizer.points=[[1, 0.5], [9, 0.25]]")
		case "optimizer.momentum":
			base = parse(t, "data.train = ['a.txt']", "optimizer.name=sgd")
		case "optimizer.muon_scale":
			base = parse(t, "data.train = ['a.txt']", "optimizer.name=muon")
		case "telemetry.metrics_insecure":
			sets = append(sets, "telemetry.metrics=127.0.0.1:9464")
		case "cluster.edge":
			sets = append(sets, "cluster.place=x")
		case "pipeline.max_in_flight":
			sets = append(sets, "pipeline.schedule=auto")
		}
		now := parse(t, string(base.TOML()), sets...)
		want := Change{Key: key, A: value(base, key), B: value(now, key)}
		changes := everyDifference(base, now)
		if !slices.Contains(changes, want) || len(changes) > len(sets) {
			t.Errorf("--set %q: Diff = %v, want %v", sets, changes, want)
		}
		conflict := slices.Contains(ResumeConflicts(base, now), want)
		if conflict == slices.Contains(mayDiffer, key) {
			t.Errorf("a resumed run with another %s: conflict %v", key, conflict)
		}
	}
	for key := range other {
		if lookup(key) == nil {
			t.Errorf("%s has another value, but is no key", key)
		}
	}
}

// TestResumeWithOtherValidation: that there are files to validate on, or none any more,
// is the conflict, not what follows from it.
func TestResumeWithOtherValidation(t *testing.T) {
	part := parse(t, "data.train = ['a.txt']", "data.val_split=tail")
	files := parse(t, "data.train = ['a.txt']", "data.val=v.txt")
	if got, want := ResumeConflicts(part, files), []Change{{"data.val", `[]`, `["v.txt"]`}}; !slices.Equal(got, want) {
		t.Errorf("conflicts %v, want %v", got, want)
	}
	if got, want := ResumeConflicts(files, part), []Change{{"data.val", `["v.txt"]`, `[]`}}; !slices.Equal(got, want) {
		t.Errorf("conflicts %v, want %v", got, want)
	}
}

func TestWithShape(t *testing.T) {
	shape := Model{Family: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, FFN: 192, Context: 32,
		TieEmbeddings: true, RopeTheta: 500000, Vocab: 256, MTPLayers: 1}
	text := "[model]\nfrom = 'runs/a'\ndropout = 0.25\nlayers = 2\n[data]\ntrain = ['a.txt']\n"

	c := parse(t, text)
	if c.Model.Hidden != 0 || c.Model.Family != "" || c.Model.TieEmbeddings || c.Model.RopeTheta != 0 {
		t.Errorf("the shape has values before anyone knows it: %+v", c.Model)
	}
	open := string(c.TOML())
	if !strings.Contains(open, "# hidden: from the checkpoint in model.from") || strings.Contains(open, "hidden =") {
		t.Errorf("the open keys don't print as comments:\n%s", open)
	}
	if changes := everyDifference(c, parse(t, open)); changes != nil {
		t.Errorf("the open configuration reads back with %v", changes)
	}

	unshaped := c
	c, err := c.WithShape(shape)
	if err != nil {
		t.Fatal(err)
	}
	if string(unshaped.TOML()) != open {
		t.Error("the configuration without a shape has changed")
	}
	want := shape
	want.From, want.Dropout, want.MTPWeight, want.AuxLossWeight, want.FrozenDType = "runs/a", 0.25, 0.3, 0.001, FrozenAuto
	want.LoadBalancingType = MicrobatchBalance
	if !reflect.DeepEqual(c.Model, want) {
		t.Errorf("got %+v, want %+v", c.Model, want)
	}
	if c.IsSet("model.hidden") || c.Where("model.hidden").String() != "config.toml:2:8" {
		t.Errorf("model.hidden comes from %v, want the place of model.from", c.Where("model.hidden"))
	}
	again := parse(t, string(c.TOML()))
	if changes := everyDifference(c, again); changes != nil {
		t.Errorf("the filled configuration reads back with %v", changes)
	}
	if _, err := again.WithShape(shape); err != nil {
		t.Errorf("the filled configuration, read back: %v", err)
	}
}

func TestWithShapeRefuses(t *testing.T) {
	text := "[model]\nfrom = 'runs/a'\nlayers = 3\n[data]\ntrain = ['a.txt']\n[batch]\nsequences=1048576"
	good := Model{Family: "gpt2", Layers: 3, Hidden: 64, Heads: 4, KVHeads: 4, FFN: 256, Context: 32, RopeTheta: 1e4}
	for _, c := range []struct {
		name   string
		change func(*Model)
		want   string
	}{
		{"nothing", func(*Model) {}, ""},
		{"another number of layers", func(m *Model) { m.Layers = 12 },
			"config.toml:3:10: model.layers: 3, but the checkpoint in model.from has 12; leave the key out, or start from another checkpoint"},
		{"an impossible size", func(m *Model) { m.FFN = 0 },
			"config.toml:2:8: model.ffn: 0 is too small; use 1 to 4194304"},
		{"a context too long for the batch", func(m *Model) { m.Context = 1024 },
			"config.toml:7:11: batch.sequences: 1048576 times model.context = 1024 is 1073741824 tokens a step; the limit is 67108864 tokens; reduce one of them"},
	} {
		shape := good
		c.change(&shape)
		got := ""
		if _, err := parse(t, text).WithShape(shape); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	c := parse(t, "data.train = ['a.txt']")
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Model.Hidden = 130
	c.Optimizer.LR = -1
	want := "default: optimizer.lr: -1.0 is too small; use more than 0, up to 1e+06\n" +
		"default: model.hidden: 130 is not divisible by the default model.heads = 4 (remainder 2); make hidden a multiple of heads"
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// everyDifference lists all keys that differ.
func everyDifference(a, b *Config) []Change { return diff(a, b, func(*field) bool { return true }) }
