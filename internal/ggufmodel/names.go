package ggufmodel

import (
	"strconv"
	"strings"
)

// change says how a tensor differs in a GGUF file.
type change int

const (
	same       change = iota
	transposed        // stored as [in, out] in Hugging Face's file, as [out, in] in GGUF
	queryRows         // rows of a head in the order of an interleaved rotation, if the architecture is permuted
	keyRows           // the same for the heads of keys
	normWeight        // one more, if the architecture is onePlus
)

// name is a tensor's name in both files, without the suffix .weight or .bias and, for a tensor of a layer,
// without the layer.
type name struct {
	hf, gguf string
	change   change
}

// names are the tensors of an architecture.
type names struct {
	hfLayer string // before the number of a layer
	whole   []name
	layer   []name
}

const ggufLayer = "blk."

var llamaWhole = []name{
	{"model.embed_tokens", "token_embd", same}, {"model.norm", "output_norm", normWeight}, {"lm_head", "output", same},
}

// attention and gated are the parts that the families after Llama share.
var attention = []name{
	{"self_attn.q_proj", "attn_q", queryRows}, {"self_attn.k_proj", "attn_k", keyRows}, {"self_attn.v_proj", "attn_v", same},
	{"self_attn.o_proj", "attn_output", same}, {"self_attn.q_norm", "attn_q_norm", normWeight},
	{"self_attn.k_norm", "attn_k_norm", normWeight},
}

var gated = []name{{"mlp.gate_proj", "ffn_gate", same}, {"mlp.up_proj", "ffn_up", same}, {"mlp.down_proj", "ffn_down", same}}

// normsBefore are norms before attention and before the feed-forward part.
var normsBefore = []name{{"input_layernorm", "attn_norm", normWeight}, {"post_attention_layernorm", "ffn_norm", normWeight}}

var (
	llamaNames = names{"model.layers.", llamaWhole, join(normsBefore, attention, gated)}
	olmo2Names = names{"model.layers.", llamaWhole, join(attention, gated, []name{
		{"post_attention_layernorm", "post_attention_norm", normWeight}, {"post_feedforward_layernorm", "post_ffw_norm", normWeight},
	})}
	phi3Names = names{"model.layers.", llamaWhole, join(normsBefore, []name{
		{"self_attn.qkv_proj", "attn_qkv", same}, {"self_attn.o_proj", "attn_output", same},
		{"mlp.gate_up_proj", "ffn_up", same}, {"mlp.down_proj", "ffn_down", same},
	})}
	gemmaNames = names{"model.layers.", llamaWhole, join(attention, gated, []name{
		{"input_layernorm", "attn_norm", normWeight}, {"post_attention_layernorm", "post_attention_norm", normWeight},
		{"pre_feedforward_layernorm", "ffn_norm", normWeight}, {"post_feedforward_layernorm", "post_ffw_norm", normWeight},
	})}
	gpt2Names = names{"transformer.h.", []name{
		{"transformer.wte", "token_embd", same}, {"transformer.wpe", "position_embd", same}, {"transformer.ln_f", "output_norm", same},
		{"lm_head", "output", same},
	}, []name{
		{"ln_1", "attn_norm", same}, {"attn.c_attn", "attn_qkv", transposed}, {"attn.c_proj", "attn_output", transposed},
		{"ln_2", "ffn_norm", same}, {"mlp.c_fc", "ffn_up", transposed}, {"mlp.c_proj", "ffn_down", transposed},
	}}
)

func join(parts ...[]name) (all []name) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// translated returns the other name of a tensor and its change; toGGUF is the direction.
func (n names) translated(tensor string, toGGUF bool) (other string, c change, ok bool) {
	base, suffix := tensor, ""
	for _, s := range []string{".weight", ".bias"} {
		if b, found := strings.CutSuffix(tensor, s); found {
			base, suffix = b, s
		}
	}
	from, to := ggufLayer, n.hfLayer
	if toGGUF {
		from, to = to, from
	}
	table, layer := n.whole, ""
	if rest, found := strings.CutPrefix(base, from); found {
		number, part, _ := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(number); err != nil || strconv.Itoa(i) != number {
			return "", same, false
		}
		table, layer, base = n.layer, to+number+".", part
	}
	for _, one := range table {
		a, b := one.gguf, one.hf
		if toGGUF {
			a, b = b, a
		}
		if a != base || suffix == "" {
			continue
		}
		c := one.change
		// A bias has no columns to transpose, and a norm's 1+w is about its weight.
		if suffix == ".bias" && (c == transposed || c == normWeight) {
			c = same
		}
		return layer + b + suffix, c, true
	}
	return "", same, false
}
