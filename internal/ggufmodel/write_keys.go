package ggufmodel

import (
	"encoding/json"
	"strconv"
)

// writeGPT2 writes the keys of gpt2.
func writeGPT2(w *writer) {
	s := w.settings
	s.ignore("n_ctx", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
		"summary_use_proj")
	if !get(s, "scale_attn_weights", true) {
		s.refuse("scale_attn_weights is false")
	}
	w.layers, w.context, w.hidden = get(s, "n_layer", 12), get(s, "n_positions", 1024), get(s, "n_embd", 768)
	w.heads = get(s, "n_head", 12)
	ffn := get(s, "n_inner", 4*w.hidden)
	w.own("block_count", uint32(w.layers))
	w.own("context_length", uint32(w.context))
	w.own("embedding_length", uint32(w.hidden))
	w.own("feed_forward_length", uint32(ffn))
	w.own("attention.head_count", uint32(w.heads))
	w.own("attention.layer_norm_epsilon", float32(get(s, "layer_norm_epsilon", 1e-5)))
	w.only("activation_function", "gelu_new", "gelu_new", "gelu_pytorch_tanh")
}

// rotary writes the keys of the families after Llama, and refuses what llama.cpp computes otherwise.
func (w *writer) rotary() {
	r := w.shape()
	if r.partial != 1 {
		w.settings.refuse("partial_rotary_factor is %g, but llama.cpp's %s rotates whole heads", r.partial, w.arch.name)
	}
	w.positions(r)
}

// shape writes the sizes.
func (w *writer) shape() rope {
	s := w.settings
	w.layers, w.context, w.hidden = get(s, "num_hidden_layers", 0), get(s, "max_position_embeddings", w.arch.context), get(s, "hidden_size", 0)
	w.heads = max(1, get(s, "num_attention_heads", 0))
	w.kvHeads = get(s, "num_key_value_heads", w.heads)
	own := get(s, "head_dim", 0)
	if w.headDim = own; own == 0 {
		w.headDim = w.hidden / w.heads
	}
	if w.arch.plainDim && w.headDim*w.heads != w.hidden {
		s.refuse("head_dim is %d, but llama.cpp's %s has hidden_size / num_attention_heads, %d / %d", w.headDim, w.arch.name, w.hidden, w.heads)
	}
	w.only("hidden_act", "silu", "silu", "swish")
	w.own("block_count", uint32(w.layers))
	w.own("context_length", uint32(w.context))
	w.own("embedding_length", uint32(w.hidden))
	w.own("feed_forward_length", uint32(get(s, "intermediate_size", 0)))
	w.own("attention.head_count", uint32(w.heads))
	w.own("attention.head_count_kv", uint32(w.kvHeads))
	w.own("attention.layer_norm_rms_epsilon", float32(get(s, "rms_norm_eps", 1e-6)))
	if !w.arch.plainDim && own != 0 {
		w.own("attention.key_length", uint32(w.headDim))
		w.own("attention.value_length", uint32(w.headDim))
	}
	s.ignore("attention_bias", "mlp_bias") // the tensors show them
	if !w.arch.windows {
		w.noWindow()
	}
	return w.rope()
}

// positions writes the keys of rotary positions.
func (w *writer) positions(r rope) {
	if w.arch.name != "gemma2" || r.theta != w.arch.theta { // the converter leaves it out
		w.own("rope.freq_base", float32(r.theta))
	}
	if r.local != 0 {
		w.own("rope.freq_base_swa", float32(r.local))
	}
	if w.arch.vocab {
		w.own("rope.dimension_count", uint32(w.headDim))
	}
	w.scaling(r, w.headDim)
}

// noWindow warns if the model has windows, which llama.cpp does not have in this architecture.
func (w *writer) noWindow() {
	s := w.settings
	window, used := get(s, "sliding_window", 0), get(s, "use_sliding_window", w.family == "mistral" || w.family == "phi3")
	types := get(s, "layer_types", []string(nil))
	if used && window > 0 && window < w.context && (types == nil || hasWindow(types)) {
		w.warn("llama.cpp has no windows for %s: it computes texts of more than %d tokens, the model's sliding_window, in another way",
			w.arch.name, window)
	}
}

func hasWindow(types []string) bool {
	for _, t := range types {
		if t == "sliding_attention" {
			return true
		}
	}
	return false
}

// only refuses a key with another value than the given ones.
func (w *writer) only(key, otherwise string, values ...string) {
	got := get(w.settings, key, otherwise)
	for _, v := range values {
		if got == v {
			return
		}
	}
	w.settings.refuse("%s is %q, but llama.cpp's %s has %q", key, got, w.arch.name, values[0])
}

func writeSmolLM3(w *writer) {
	const interval = 4 // every fourth layer of llama.cpp's smollm3 has no rotary positions
	s := w.settings
	every := get(s, "no_rope_layer_interval", interval)
	rotates := get(s, "no_rope_layers", []int(nil))
	w.rotary()
	for i := range w.layers {
		one := (i + 1) % max(1, every)
		if rotates != nil {
			one = 0
			if i < len(rotates) {
				one = rotates[i]
			}
		}
		if (one != 0) != ((i+1)%interval != 0) {
			s.refuse("no_rope_layers: llama.cpp leaves out rotary positions in every fourth layer, and layer %d differs", i)
			return
		}
	}
}

func writeGranite(w *writer) {
	w.rotary()
	s := w.settings
	w.own("attention.scale", float32(get(s, "attention_multiplier", 1.0)))
	w.own("embedding_scale", float32(get(s, "embedding_multiplier", 1.0)))
	w.own("residual_scale", float32(get(s, "residual_multiplier", 1.0)))
	w.own("logit_scale", float32(get(s, "logits_scaling", 1.0)))
}

// writeOlmo2 also writes olmo3, which has windows.
func writeOlmo2(w *writer) {
	w.rotary()
	s := w.settings
	types := get(s, "layer_types", []string(nil))
	window := get(s, "sliding_window", 0)
	if w.family != "olmo3" {
		return
	}
	w.own("attention.sliding_window", uint32(window))
	pattern := make([]bool, w.layers)
	for i := range pattern {
		pattern[i] = (i+1)%4 != 0
		if types != nil {
			pattern[i] = i < len(types) && types[i] == "sliding_attention"
		}
	}
	w.own("attention.sliding_window_pattern", pattern)
}

func writePhi3(w *writer) {
	w.settings.ignore("full_attn_mod", "interpolate_factor")
	window := get(w.settings, "sliding_window", 0)
	w.settings.members["sliding_window"] = json.RawMessage(strconv.Itoa(window)) // for the warning
	r := w.shape()
	w.own("attention.sliding_window", uint32(window))
	if r.original == 0 {
		r.original = w.arch.context
	}
	width := int(r.partial*float64(w.hidden)) / w.heads
	w.own("rope.scaling.original_context_length", uint32(r.original))
	w.own("rope.dimension_count", uint32(width))
	w.own("rope.freq_base", float32(r.theta))
	if r.kind == "" {
		return
	}
	if len(r.long) != width/2 || len(r.short) != width/2 {
		w.settings.refuse("rope_type %q with %d long and %d short factors for %d rotated channels", r.kind, len(r.long), len(r.short), width)
		return
	}
	w.own("rope.scaling.attn_factor", float32(longFactor(r, w.context)))
	w.extra("rope_factors_long.weight", float32s(r.long))
	w.extra("rope_factors_short.weight", float32s(r.short))
}

func writeGemma2(w *writer) {
	s := w.settings
	w.gemma(46)
	w.own("attn_logit_softcapping", float32(w.needed("attn_logit_softcapping", 50)))
	w.own("final_logit_softcapping", float32(w.needed("final_logit_softcapping", 30)))
	w.own("attention.sliding_window", uint32(get(s, "sliding_window", 4096)))
	w.pattern(2)
}

func writeGemma3(w *writer) {
	s := w.settings
	s.ignore("_sliding_window_pattern") // layer_types stands beside it
	w.gemma(62)
	if get(s, "attn_logit_softcapping", 0.0) != 0 {
		s.refuse("attn_logit_softcapping, which llama.cpp's gemma3 does not have")
	}
	if soft := get(s, "final_logit_softcapping", 0.0); soft != 0 {
		w.own("final_logit_softcapping", float32(soft))
	}
	w.own("attention.sliding_window", uint32(get(s, "sliding_window", 4096)))
	w.pattern(get(s, "sliding_window_pattern", 6))
	if get(s, "use_bidirectional_attention", false) {
		s.refuse("use_bidirectional_attention")
	}
}

// gemma writes the keys of Gemma. For models with so many layers llama.cpp scales the scores by
// √(hidden/heads), and by √head_dim otherwise.
func (w *writer) gemma(wide int) {
	s := w.settings
	s.ignore("hidden_act")
	w.only("hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh")
	scalar := get(s, "query_pre_attn_scalar", 256.0)
	r := w.shape()
	want := float64(w.headDim)
	if w.layers == wide {
		want = float64(w.hidden / w.heads)
	}
	if scalar != want {
		s.refuse("query_pre_attn_scalar is %g, but llama.cpp computes %s with %g", scalar, w.arch.name, want)
	}
	if r.partial != 1 {
		s.refuse("partial_rotary_factor is %g", r.partial)
	}
	w.positions(r)
}

// needed reads a number that llama.cpp can't do without.
func (w *writer) needed(key string, otherwise float64) float64 {
	if v, ok := w.settings.members[key]; ok && string(v) == "null" {
		w.settings.refuse("%s is null, but llama.cpp's %s always has it", key, w.arch.name)
	}
	v := get(w.settings, key, otherwise)
	if v == 0 {
		w.settings.refuse("%s is 0, but llama.cpp's %s always has it", key, w.arch.name)
	}
	return v
}

// pattern writes which layers have windows, unless it is all but every nth, as llama.cpp assumes.
func (w *writer) pattern(every int) {
	types := get(w.settings, "layer_types", []string(nil))
	usual := map[string]int{"gemma2": 2, "gemma3": 6}[w.arch.name]
	windows := make([]bool, w.layers)
	differs := false
	for i := range windows {
		windows[i] = every > 0 && (i+1)%every != 0
		if types != nil {
			windows[i] = i < len(types) && types[i] == "sliding_attention"
		}
		differs = differs || windows[i] != ((i+1)%usual != 0)
	}
	if differs {
		w.own("attention.sliding_window_pattern", windows)
	}
}
