package ggufmodel

import (
	"math"

	"github.com/troupe-ml/troupe/internal/gguf"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// maxHeadDim limits the channels of a head, as stages.MaxHidden limits those of all.
const maxHeadDim = 1 << 20

func readGPT2(r *reader) {
	r.layers, r.context, r.hidden, r.heads = r.need("block_count"), r.need("context_length"), r.need("embedding_length"),
		r.need("attention.head_count")
	if n := r.int("attention.head_count_kv", r.heads); n != r.heads {
		r.fail("attention.head_count_kv", "%d, but gpt2 needs one for each of the %d heads", n, r.heads)
	}
	r.set("n_layer", r.layers)
	r.set("n_positions", r.context)
	r.set("n_embd", r.hidden)
	r.set("n_head", r.heads)
	r.set("n_inner", r.need("feed_forward_length"))
	r.setFloat("layer_norm_epsilon", r.float("attention.layer_norm_epsilon", 1e-5))
	r.set("activation_function", "gelu_new")
	for _, key := range []string{"attn_pdrop", "embd_pdrop", "resid_pdrop"} { // transformers assumes 0.1
		r.set(key, 0)
	}
}

// rotary reads the keys of the families after Llama.
func (r *reader) rotary() {
	r.shape()
	r.rope(r.headDim)
}

// shape reads the sizes.
func (r *reader) shape() {
	r.layers, r.context, r.hidden, r.heads = r.need("block_count"), r.need("context_length"), r.need("embedding_length"),
		r.need("attention.head_count")
	r.kvHeads = r.int("attention.head_count_kv", r.heads)
	r.headDim = r.int("attention.key_length", r.hidden/max(1, r.heads))
	if r.headDim > maxHeadDim {
		r.fail("attention.key_length", "%d, but must be a whole number from 0 to %d", r.headDim, maxHeadDim)
		return
	}
	if v := r.int("attention.value_length", r.headDim); v != r.headDim {
		r.refuse("attention.value_length", "%d, but attention.key_length is %d", v, r.headDim)
	}
	r.set("num_hidden_layers", r.layers)
	r.set("max_position_embeddings", r.context)
	r.set("hidden_size", r.hidden)
	r.set("num_attention_heads", r.heads)
	r.set("num_key_value_heads", r.kvHeads)
	if !r.arch.plainDim {
		r.set("head_dim", r.headDim)
	}
	r.set("intermediate_size", r.need("feed_forward_length"))
	r.setFloat("rms_norm_eps", r.float("attention.layer_norm_rms_epsilon", 1e-5))
	_, bias := r.header.Info("blk.0.attn_q.bias")
	_, mlp := r.header.Info("blk.0.ffn_up.bias")
	switch r.arch.name {
	case "qwen2", "phi3", "gemma2": // no choice
	default:
		r.set("attention_bias", bias)
	}
	switch r.arch.name {
	case "llama", "smollm3", "granite":
		r.set("mlp_bias", mlp)
	}
	if r.arch.name == "gemma2" || r.arch.name == "gemma3" {
		r.set("hidden_activation", "gelu_pytorch_tanh")
		return
	}
	r.set("hidden_act", "silu")
}

// rope reads the keys of rotary positions; width is the number of rotated channels that config.json says.
func (r *reader) rope(width int) {
	theta := r.float("rope.freq_base", 10000)
	r.setFloat("rope_theta", theta)
	if n := r.int("rope.dimension_count", width); n != width {
		r.refuse("rope.dimension_count", "%d of the %d channels of a head", n, width)
	}
	if n := r.int("rope.dimension_count_swa", width); n != width {
		r.refuse("rope.dimension_count_swa", "%d of the %d channels of a head", n, width)
	}
	kind := "none"
	if v, ok := r.value("rope.scaling.type"); ok {
		kind, _ = v.(string)
	}
	factor := r.float("rope.scaling.factor", 1)
	if old := r.float("rope.scale_linear", 1); old != 1 && kind == "none" {
		kind, factor = "linear", old
	}
	if v, ok := r.value("rope.scaling.finetuned"); ok && v == false && r.arch.name == "granite" {
		r.refuse("rope.scaling.finetuned", "false")
	}
	switch kind {
	case "none":
	case "linear":
		if factor != 1 {
			r.set("rope_scaling", map[string]any{"rope_type": "linear", "factor": shortest(factor)})
		}
	case "yarn":
		o := map[string]any{"rope_type": "yarn", "factor": shortest(factor),
			"original_max_position_embeddings": r.int("rope.scaling.original_context_length", r.context)}
		for _, one := range []struct{ key, name string }{{"rope.scaling.yarn_beta_fast", "beta_fast"},
			{"rope.scaling.yarn_beta_slow", "beta_slow"}} {
			if v := r.float(one.key, 0); v != 0 {
				o[one.name] = shortest(v)
			}
		}
		for _, key := range []string{"rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor", "rope.scaling.attn_factor"} {
			if v := r.float(key, 1); v != 1 {
				r.refuse(key, "%g; Troupe reads 1", v)
			}
		}
		r.set("rope_scaling", o)
	default:
		r.refuse("rope.scaling.type", "%s", show(kind))
	}
	r.llama3(float64(theta), width, kind)
}

// llama3 reads the factors of Llama 3.1 and later.
func (r *reader) llama3(theta float64, width int, kind string) {
	factors := r.vector("rope_freqs.weight")
	if factors == nil || r.err != nil {
		return
	}
	one, ok := llama3Of(factors, theta, width)
	if !ok || kind != "none" {
		r.refuse("rope.freq_base", "%g, but tensor %q has no factors of Llama 3's scaling with low_freq_factor 1 and high_freq_factor 4", theta,
			"rope_freqs.weight")
		return
	}
	r.set("rope_scaling", map[string]any{"rope_type": "llama3", "factor": shortest(float32(one.factor)), "low_freq_factor": one.low,
		"high_freq_factor": one.high, "original_max_position_embeddings": one.original})
}

// vector reads a short tensor in F32; nil: there is none.
func (r *reader) vector(name string) []float32 {
	info, ok := r.header.Info(name)
	if !ok {
		return nil
	}
	if info.Type != gguf.F32 || len(info.Shape) != 1 || r.bytes == nil {
		r.fail("rope.freq_base", "set, but tensor %q is no vector in F32", name)
		return nil
	}
	data, err := r.bytes(name)
	if err == nil {
		var values []float32
		if values, err = safetensors.Float32s("F32", data); err == nil {
			return values
		}
	}
	if r.err == nil {
		r.err = err
	}
	return nil
}

func readSmolLM3(r *reader) {
	r.rotary()
	r.set("no_rope_layer_interval", 4)
}

func readGranite(r *reader) {
	r.rotary()
	r.setFloat("attention_multiplier", r.float("attention.scale", float32(1/math.Sqrt(float64(max(1, r.headDim))))))
	r.setFloat("embedding_multiplier", r.float("embedding_scale", 1))
	r.setFloat("residual_multiplier", r.float("residual_scale", 1))
	r.setFloat("logits_scaling", r.float("logit_scale", 1))
}

func readOlmo2(r *reader) {
	r.rotary()
	window := r.int("attention.sliding_window", 0)
	theta := r.float("rope.freq_base", 10000)
	local := r.float("rope.freq_base_swa", theta)
	if window == 0 {
		return
	}
	if local != theta {
		r.ropeByType(theta, local)
	}
	r.set("model_type", "olmo3")
	r.set("architectures", []string{"Olmo3ForCausalLM"})
	r.set("sliding_window", window)
	r.layerTypes(4)
}

// ropeByType writes rotary positions apart for layers with a window, which have no scaling.
func (r *reader) ropeByType(theta, local float32) {
	full := object{"rope_type": "default"}
	if scaling, ok := r.config["rope_scaling"].(object); ok {
		full = scaling
	}
	full["rope_theta"] = shortest(theta)
	delete(r.config, "rope_scaling")
	delete(r.config, "rope_theta")
	r.set("rope_parameters", object{"full_attention": full, "sliding_attention": object{"rope_type": "default",
		"rope_theta": shortest(local)}})
}

// layerTypes reads which layers have windows; the default is all but every nth.
func (r *reader) layerTypes(every int) {
	windows := make([]bool, min(r.layers, 1<<16))
	if v, ok := r.value("attention.sliding_window_pattern"); ok {
		switch v := v.(type) {
		case []bool:
			if len(v) != r.layers {
				r.fail("attention.sliding_window_pattern", "a list of %d, but there are %d layers", len(v), r.layers)
				return
			}
			windows, every = v, 0
		default:
			every = r.int("attention.sliding_window_pattern", every)
		}
	}
	types := make([]string, len(windows))
	for i := range types {
		types[i] = "full_attention"
		if windows[i] || every > 0 && (i+1)%every != 0 {
			types[i] = "sliding_attention"
		}
	}
	r.set("layer_types", types)
}

func readPhi3(r *reader) {
	r.shape()
	width := r.int("rope.dimension_count", r.headDim)
	if width != r.headDim {
		r.set("partial_rotary_factor", float64(width)/float64(max(1, r.headDim)))
	}
	original := r.int("rope.scaling.original_context_length", r.arch.context)
	r.set("original_max_position_embeddings", original)
	if window := r.int("attention.sliding_window", 0); window > 0 {
		r.set("sliding_window", window)
	}
	long, short := r.vector("rope_factors_long.weight"), r.vector("rope_factors_short.weight")
	r.setFloat("rope_theta", r.float("rope.freq_base", 10000))
	kind, _ := r.value("rope.scaling.type")
	attention := r.float("rope.scaling.attn_factor", 0)
	if long == nil && short == nil {
		if kind != nil && kind != "none" && kind != "longrope" {
			r.refuse("rope.scaling.type", "%s", show(kind))
		}
		return
	}
	if len(long) != width/2 || len(short) != width/2 {
		r.fail("rope.dimension_count", "%d, but there are %d long and %d short factors", width, len(long), len(short))
		return
	}
	scaling := map[string]any{"rope_type": "longrope", "long_factor": numbers(long), "short_factor": numbers(short)}
	own := longFactor(rope{original: original}, r.context)
	if attention != 0 && math.Abs(float64(attention)-own) > 1e-6 {
		scaling["attention_factor"] = shortest(attention)
	}
	r.set("rope_scaling", scaling)
}

func numbers(all []float32) []any {
	out := make([]any, len(all))
	for i, v := range all {
		out[i] = shortest(v)
	}
	return out
}

func readGemma2(r *reader) {
	r.gemma(46, 2)
	r.setFloat("attn_logit_softcapping", r.float("attn_logit_softcapping", 50))
	r.setFloat("final_logit_softcapping", r.float("final_logit_softcapping", 30))
}

func readGemma3(r *reader) {
	r.gemma(62, 6)
	if soft := r.float("final_logit_softcapping", 0); soft != 0 {
		r.setFloat("final_logit_softcapping", soft)
	}
	r.setFloat("rope_local_base_freq", r.float("rope.freq_base_swa", 10000))
}

func (r *reader) gemma(wide, every int) {
	r.rotary()
	scalar := r.headDim
	if r.layers == wide {
		scalar = r.hidden / max(1, r.heads)
	}
	r.set("query_pre_attn_scalar", scalar)
	r.set("sliding_window", r.int("attention.sliding_window", 4096))
	r.layerTypes(every)
}
