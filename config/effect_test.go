package config

import (
	"slices"
	"strings"
	"testing"
)

// A key that another one leaves without effect is an error that names both, unless it
// has the value that it would have anyway.
func TestKeysWithoutEffect(t *testing.T) {
	const csv, gpus, mixed = "pipeline.schedule=mine.csv", `device.ranks=["cuda", "cuda"]`, `device.ranks=["cuda", "cpu"]`
	for _, c := range []struct {
		set, under string
		sets       []string // that leave it without effect
		usual      string   // its value by default then
		with       []string // that give it an effect
	}{
		{"run.sample_temperature=0.5", "run.sample_tokens", nil, "0.0", []string{"run.sample_tokens=9"}},
		{"run.sample_prompt=x", "run.sample_tokens", nil, "", []string{"run.sample_tokens=9"}},
		{"model.rope_theta=5e5", "model.family", nil, "10000", []string{"model.family=llama"}},
		{"model.mtp_weight=0.1", "model.mtp_layers", nil, "0.3", []string{"model.mtp_layers=1"}},
		{"model.aux_loss_weight=0.1", "model.experts", nil, "0.001", []string{"model.family=mixtral"}},
		{"model.load_balancing_type=seq_aux_loss", "model.experts", nil, "aux_loss", []string{"model.family=mixtral"}},
		{"model.load_balancing_type=global_aux_loss", "model.experts", nil, "aux_loss", []string{"model.family=mixtral"}},
		{"model.z_loss_weight=0.1", "model.experts", nil, "0", []string{"model.family=mixtral"}},
		{"model.input_jitter_eps=0.1", "model.experts", nil, "0", []string{"model.family=mixtral"}},
		{"model.shared_expert_ffn=64", "model.family", []string{"model.family=qwen3_moe"}, "0", []string{"model.family=qwen2_moe"}},
		{"model.first_k_dense_replace=2", "model.family", []string{"model.family=qwen3_moe"}, "0", []string{"model.family=deepseek_v3"}},
		{"model.decoder_sparse_step=2", "model.family", nil, "1", []string{"model.family=qwen3_moe"}},
		{"model.norm_topk_prob=false", "model.family", []string{"model.family=mixtral"}, "true", []string{"model.family=qwen3_moe"}},
		{"model.routed_scaling_factor=2", "model.family", []string{"model.family=mixtral"}, "1", []string{"model.family=deepseek_v3"}},
		{"model.router_bias_update_rate=0.1", "model.family", []string{"model.family=mixtral"}, "0", []string{"model.family=deepseek_v3"}},
		{"model.q_lora_rank=8", "model.family", []string{"model.family=llama"}, "0", []string{"model.family=deepseek_v3"}},
		{"model.v_head_dim=8", "model.family", []string{"model.family=llama"}, "0", []string{"model.family=deepseek_v3"}},
		{"data.val_split=tail", "data.val", []string{"data.val=b.txt"}, "blocks", []string{"data.val=[]"}},
		{"optimizer.min_lr=0", "optimizer.decay", []string{"optimizer.lr=0.5", "optimizer.decay=constant"}, "0.05",
			[]string{"optimizer.decay=linear"}},
		{"optimizer.decay_steps=7", "optimizer.decay", nil, "0", []string{"optimizer.decay=wsd"}},
		{"optimizer.points=[[1, 0.5]]", "optimizer.decay", nil, "[]", []string{"optimizer.decay=points"}},
		{"optimizer.lr=0.75", "optimizer.points", []string{"optimizer.decay=points", "optimizer.points=[[1, 0.5]]"}, "0.5",
			[]string{"optimizer.decay=linear"}},
		{"optimizer.min_lr=0.25", "optimizer.points", []string{"optimizer.decay=points", "optimizer.points=[[1, 0.5], [9, 0]]"}, "0",
			[]string{"optimizer.lr=0.5", "optimizer.decay=linear"}},
		{"optimizer.warmup_steps=3", "optimizer.points", []string{"optimizer.decay=points", "optimizer.points=[[1, 0.5]]"}, "0",
			[]string{"optimizer.decay=linear"}},
		{"optimizer.beta1=0.8", "optimizer.name", []string{"optimizer.name=sgd"}, "0.9", []string{"optimizer.name=adamw"}},
		{"optimizer.beta2=0.8", "optimizer.name", []string{"optimizer.name=sgd"}, "0.95", []string{"optimizer.name=adamw"}},
		{"optimizer.eps=1e-6", "optimizer.name", []string{"optimizer.name=sgd"}, "1e-8", []string{"optimizer.name=adamw"}},
		{"optimizer.momentum=0", "optimizer.name", nil, "0.9", []string{"optimizer.name=sgd"}},
		{"optimizer.muon_scale=original", "optimizer.name", nil, "match_rms_adamw", []string{"optimizer.name=muon"}},
		{"optimizer.state_dtype=int8", "optimizer.momentum", []string{"optimizer.name=sgd", "optimizer.momentum=0"}, "float32",
			[]string{"optimizer.name=sgd"}},
		{"pipeline.recompute_keep=1", "pipeline.recompute", []string{"pipeline.recompute=full"}, "0", []string{"pipeline.recompute=partial"}},
		{"pipeline.microbatch_group_size=4", "pipeline.schedule", []string{csv}, "2", []string{"pipeline.chunks=2"}},
		{"pipeline.defer_weights=1", "pipeline.schedule", []string{"pipeline.schedule=MINE.CSV"}, "0", nil},
		{"pipeline.defer_weights=1", "pipeline.schedule", []string{csv}, "0", []string{"pipeline.schedule=1f1b"}},
		{"pipeline.max_in_flight=3", "pipeline.schedule", []string{csv}, "0", []string{"pipeline.schedule=auto"}},
		{"parallel.zero=1", "parallel.data", nil, "0", []string{"parallel.data=2"}},
		{"parallel.overlap=false", "parallel.data", nil, "true", []string{"parallel.tensor=2"}},
		{"parallel.order=dp-tp-pp", "parallel.data", nil, "tp-pp-dp", nil},
		{"parallel.expert_overlap=true", "parallel.expert", nil, "false", []string{"model.family=mixtral", "parallel.data=2",
			"parallel.expert=2"}},
		{"parallel.expert_overlap=true", "parallel.overlap", []string{"model.family=mixtral", "parallel.data=2", "parallel.expert=2",
			"parallel.overlap=false"}, "false", []string{"model.family=mixtral", "parallel.data=2", "parallel.expert=2"}},
		{"parallel.edges=broadcast", "parallel.tensor", nil, "auto", []string{"parallel.tensor=2"}},
		{"device.kind=cpu", "device.ranks", []string{mixed}, "auto", []string{"device.ranks=[]"}},
		{"device.residual=bfloat16", "device.dtype", nil, "float32", []string{"device.dtype=bfloat16"}},
		{"device.residual=float32", "model.family", []string{"model.family=mlp", "model.context=1", "device.dtype=bfloat16", "data.format=csv",
			"data.label=y"}, "bfloat16", []string{"device.dtype=bfloat16"}},
		{"device.threads=1", "device.kind", []string{"device.kind=cuda"}, "0", []string{"device.kind=auto"}},
		{"device.threads=1", "device.ranks", []string{gpus}, "0", []string{mixed}},
		{"device.kernels=go", "device.kind", []string{"device.kind=cuda"}, "auto", []string{"device.kind=cpu"}},
		{"device.kernels=go", "device.ranks", []string{gpus}, "auto", []string{mixed}},
		{"device.tf32=true", "device.kind", nil, "false", []string{"device.kind=cuda"}},
		{"device.tf32=true", "device.ranks", []string{`device.ranks=["cpu", "auto"]`}, "false", []string{mixed}},
		{"device.tf32=true", "device.dtype", []string{"device.kind=cuda", "device.dtype=bfloat16"}, "false", []string{"device.kind=cuda"}},
	} {
		key, _, _ := strings.Cut(c.set, "=")
		read := func(sets ...string) error {
			_, err := Parse("config.toml", []byte("data.train = ['a.txt']\npipeline.stages = 2"), sets, nil)
			return err
		}
		err := read(append(c.sets, c.set)...)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), ": "+key+": ") ||
			!strings.Contains(err.Error(), " has no effect with ") || !strings.Contains(err.Error(), c.under+" = ") {
			t.Errorf("%q with %q: error %v, want one that says that %s has no effect with %s", c.set, c.sets, err, key, c.under)
		}
		if err := read(append(c.sets, key+"="+c.usual)...); err != nil {
			t.Errorf("%s=%s with %q, which is what it is anyway: %v", key, c.usual, c.sets, err)
		}
		if err := read(append(c.with, c.set)...); err != nil && c.with != nil {
			t.Errorf("%q with %q: %v", c.set, c.with, err)
		}
	}
}

// What the checkpoint of model.from leaves without effect is known when its shape is loaded.
func TestWithoutEffectOnceLoaded(t *testing.T) {
	gpt2 := Model{Family: "gpt2", Layers: 4, Hidden: 128, Heads: 4, KVHeads: 4, FFN: 512, Context: 128, RopeTheta: 10000}
	mtp := gpt2
	mtp.MTPLayers = 1
	for _, c := range []struct {
		model Model
		want  string
	}{
		{gpt2, "model.mtp_weight: 0.1 has no effect with model.mtp_layers = 0"},
		{mtp, ""},
	} {
		cfg := parse(t, "data.train = ['a.txt']\nmodel = {from = 'x', mtp_weight = 0.1}")
		_, err := cfg.WithShape(c.model)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("with %d layers of multi-token prediction: error %v, want %q", c.model.MTPLayers, err, c.want)
		}
	}
}

// A configuration that Go code changes is judged by its values, but for those that
// followed from others when it was read.
func TestWithoutEffectFromCode(t *testing.T) {
	c := parse(t, "data.train = ['a.txt']\noptimizer.decay = 'constant'")
	c.Optimizer.LR = 0.5 // min_lr stays
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	half := parse(t, "data.train = ['a.txt']\ndevice.dtype = 'bfloat16'")
	half.Device.DType = "float32" // residual stays
	if err := half.Validate(); err != nil {
		t.Error(err)
	}
	c.Optimizer.Momentum = 0.5
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "optimizer.momentum") {
		t.Errorf("error %v, want one about optimizer.momentum", err)
	}
}

// Each pair stands in the schema, and once.
func TestIdleKeys(t *testing.T) {
	for i, k := range idleKeys {
		if lookup(k.key) == nil || lookup(k.under) == nil {
			t.Errorf("%s or %s is no key", k.key, k.under)
		}
		if slices.ContainsFunc(idleKeys[:i], func(o idleKey) bool { return o.key == k.key && o.under == k.under }) {
			t.Errorf("%s under %s stands twice", k.key, k.under)
		}
	}
}
