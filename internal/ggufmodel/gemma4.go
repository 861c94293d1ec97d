package ggufmodel

import (
	"cmp"
	"strconv"
)

// unrotated divides the frequency of a pair of channels that stays in place, as in llama.cpp's converter.
const unrotated = 1e30

// heads4 are the heads of Gemma 4's layers that attend to all positions.
type heads4 struct{ width, kvHeads int }

// gemma4Names has no norm on the values, which has no weight.
var gemma4Names = names{gemmaNames.hfLayer, gemmaNames.whole, gemmaNames.layer, []name{{"layer_scalar", "layer_output_scale.weight", same}}}

func writeGemma4(w *writer) {
	s := w.settings
	s.ignore("hidden_act", "_sliding_window_pattern", "vocab_size_per_layer_input", "use_double_wide_mlp", "num_experts", "top_k_experts",
		"moe_intermediate_size", "use_bidirectional_attention")
	w.only("hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh")
	if get(s, "attention_bias", false) {
		s.refuse("attention_bias is true, but llama.cpp's %s has no biases", w.arch.name)
	}
	for _, key := range []string{"hidden_size_per_layer_input", "num_kv_shared_layers"} {
		if n := get(s, key, 0); n != 0 {
			s.refuse("%s is %d: Troupe does not write GGUF files of such models", key, n)
		}
	}
	s.ignore("attention_k_eq_v") // the tensors show it
	w.layers, w.context, w.hidden = get(s, "num_hidden_layers", 0), get(s, "max_position_embeddings", w.arch.context), get(s, "hidden_size", 0)
	w.heads, w.headDim = max(1, get(s, "num_attention_heads", 0)), get(s, "head_dim", 256)
	w.kvHeads = get(s, "num_key_value_heads", w.heads)
	windows := w.windowed(6)
	full := w.full4(windows)
	r := w.rope()
	w.own("block_count", uint32(w.layers))
	w.own("context_length", uint32(w.context))
	w.own("embedding_length", uint32(w.hidden))
	w.own("feed_forward_length", uint32(get(s, "intermediate_size", 0)))
	w.own("attention.head_count", uint32(w.heads))
	w.own("attention.layer_norm_rms_epsilon", float32(get(s, "rms_norm_eps", 1e-6)))
	kv := make([]int32, w.layers)
	for i := range kv {
		if kv[i] = int32(full.kvHeads); windows[i] {
			kv[i] = int32(w.kvHeads)
		}
	}
	if n, same := equal(kv); same {
		w.own("attention.head_count_kv", uint32(n))
	} else {
		w.own("attention.head_count_kv", kv)
	}
	for _, part := range []string{"key", "value"} {
		w.own("attention."+part+"_length", uint32(full.width))
		w.own("attention."+part+"_length_swa", uint32(w.headDim))
	}
	w.own("attention.sliding_window", uint32(get(s, "sliding_window", 512)))
	w.own("attention.sliding_window_pattern", windows)
	w.own("attention.shared_kv_layers", uint32(0))
	w.own("embedding_length_per_layer_input", uint32(0))
	if soft := get(s, "final_logit_softcapping", 0.0); soft != 0 {
		w.own("final_logit_softcapping", float32(soft))
	}
	w.own("rope.freq_base", float32(r.theta))
	w.own("rope.freq_base_swa", float32(cmp.Or(r.local, 10000)))
	w.own("rope.dimension_count", uint32(full.width))
	w.own("rope.dimension_count_swa", uint32(w.headDim))
	w.turning4(r, full.width)
}

// turning4 writes the factors of the frequencies of layers that attend to all positions: only a part of the pairs rotates.
func (w *writer) turning4(r rope, width int) {
	switch {
	case r.kind == "":
		r.partial = 1
	case r.kind != "proportional":
		w.settings.refuse("rope_type %q, which llama.cpp's %s does not have", r.kind, w.arch.name)
	case r.factor != 0 && r.factor != 1:
		w.settings.refuse("factor is %g, but llama.cpp's %s has no scaling", r.factor, w.arch.name)
	}
	factors := make([]float32, width/2)
	for i := range factors {
		if factors[i] = 1; i >= int(float64(width)*r.partial/2) {
			factors[i] = unrotated
		}
	}
	w.extra("rope_freqs.weight", factors)
}

// windowed returns which layers have windows; the default is all but every nth.
func (w *writer) windowed(every int) []bool {
	types, windows := get(w.settings, "layer_types", []string(nil)), make([]bool, w.layers)
	for i := range windows {
		windows[i] = (i+1)%every != 0 && i != w.layers-1
		if types != nil {
			windows[i] = i < len(types) && types[i] == "sliding_attention"
		}
	}
	return windows
}

// full4 returns the heads of layers that attend to all positions. per_layer_config, which transformers writes, takes
// the place of the other keys.
func (w *writer) full4(windows []bool) heads4 {
	s := w.settings
	full := heads4{get(s, "global_head_dim", 2*w.headDim), cmp.Or(get(s, "num_global_key_value_heads", 0), w.kvHeads)}
	layers := s.object("per_layer_config")
	if layers == nil {
		return full
	}
	for i, window := range windows {
		if one := layers.object(strconv.Itoa(i)); one != nil && !window {
			full = heads4{get(one, "head_dim", full.width), get(one, "num_key_value_heads", full.kvHeads)}
		}
	}
	return full
}

func readGemma4(r *reader) {
	r.layers, r.context, r.hidden, r.heads = r.need("block_count"), r.need("context_length"), r.need("embedding_length"),
		r.need("attention.head_count")
	width := r.need("attention.key_length")
	r.headDim = r.int("attention.key_length_swa", width)
	for key, want := range map[string]int{"attention.value_length": width, "attention.value_length_swa": r.headDim,
		"rope.dimension_count":     width,
		"rope.dimension_count_swa": r.headDim} {
		if n := r.int(key, want); n != want {
			r.refuse(key, "%d; Troupe reads %d", n, want)
		}
	}
	r.set("num_hidden_layers", r.layers)
	r.set("max_position_embeddings", r.context)
	r.set("hidden_size", r.hidden)
	r.set("num_attention_heads", r.heads)
	r.set("head_dim", r.headDim)
	r.set("global_head_dim", width)
	r.set("intermediate_size", r.need("feed_forward_length"))
	r.setFloat("rms_norm_eps", r.float("attention.layer_norm_rms_epsilon", 1e-6))
	r.set("hidden_activation", "gelu_pytorch_tanh")
	r.set("attention_bias", false)
	r.set("hidden_size_per_layer_input", 0)
	r.set("sliding_window", r.need("attention.sliding_window"))
	r.layerTypes(6)
	r.kvHeads4()
	if soft := r.float("final_logit_softcapping", 0); soft != 0 {
		r.setFloat("final_logit_softcapping", soft)
	} else {
		r.set("final_logit_softcapping", nil)
	}
	local := r.float("rope.freq_base_swa", 10000)
	full := object{"rope_type": "proportional", "rope_theta": shortest(r.float("rope.freq_base", 1e6)), "partial_rotary_factor": 1}
	if factors := r.vector("rope_freqs.weight"); factors != nil {
		turning := 0
		for i, f := range factors {
			if f == 1 && turning == i {
				turning++
			} else if f < unrotated/2 {
				r.refuse("rope.freq_base", "set, but tensor %q has the factor %g", "rope_freqs.weight", f)
			}
		}
		if len(factors) != width/2 {
			r.fail("attention.key_length", "%d, but there are %d factors of frequencies", width, len(factors))
		}
		full["partial_rotary_factor"] = float64(turning) / float64(max(1, len(factors)))
	}
	r.set("rope_parameters", object{"full_attention": full, "sliding_attention": object{"rope_type": "default",
		"rope_theta": shortest(local)}})
}

// kvHeads4 reads the numbers of heads of keys, which layers that attend to all positions may have fewer of.
func (r *reader) kvHeads4() {
	const key = "attention.head_count_kv"
	types, _ := r.config["layer_types"].([]string)
	first := make(map[string]int)
	v, _ := r.value(key)
	list, ok := v.([]int32)
	if !ok {
		n := r.need(key)
		list = make([]int32, len(types))
		for i := range list {
			list[i] = int32(n)
		}
	}
	if len(list) != len(types) {
		r.fail(key, "a list of %d, but there are %d layers", len(list), len(types))
		return
	}
	for i, n := range list {
		if was, ok := first[types[i]]; n < 1 || ok && was != int(n) {
			r.refuse(key, "%s, not one number for each kind of layers", show(v))
			return
		}
		first[types[i]] = int(n)
	}
	full := first["full_attention"]
	r.kvHeads = cmp.Or(first["sliding_attention"], full)
	r.set("num_key_value_heads", r.kvHeads)
	r.set("num_global_key_value_heads", full)
	shared := false // a layer without a tensor of values takes the keys
	for i, kind := range types {
		if kind == "full_attention" {
			_, own := r.header.Info(ggufLayer + strconv.Itoa(i) + ".attn_v.weight")
			shared = shared || !own
		}
	}
	r.set("attention_k_eq_v", shared)
}
