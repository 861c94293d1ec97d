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

	// Of layers with the gated delta rule (delta.go): heads of values in another order.
	valueHeads   // rows
	valueTail    // rows after those of queries and keys
	valueConv    // the same of [channels, 1, taps], which GGUF has as [channels, taps]
	valueColumns // columns
	valueDecays  // −exp(w)
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
	full    []name // tensors of a layer by their full names
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
	llamaNames = names{"model.layers.", llamaWhole, join(normsBefore, attention, gated), nil}
	olmo2Names = names{"model.layers.", llamaWhole, join(attention, gated, []name{
		{"post_attention_layernorm", "post_attention_norm", normWeight}, {"post_feedforward_layernorm", "post_ffw_norm", normWeight},
	}), nil}
	phi3Names = names{"model.layers.", llamaWhole, join(normsBefore, []name{
		{"self_attn.qkv_proj", "attn_qkv", same}, {"self_attn.o_proj", "attn_output", same},
		{"mlp.gate_up_proj", "ffn_up", same}, {"mlp.down_proj", "ffn_down", same},
	}), nil}
	gemmaNames = names{"model.layers.", llamaWhole, join(attention, gated, []name{
		{"input_layernorm", "attn_norm", normWeight}, {"post_attention_layernorm", "post_attention_norm", normWeight},
		{"pre_feedforward_layernorm", "ffn_norm", normWeight}, {"post_feedforward_layernorm", "post_ffw_norm", normWeight},
	}), nil}
	qwen35Names = names{"model.layers.", llamaWhole, join(attention, gated, []name{
		{"input_layernorm", "attn_norm", normWeight}, {"post_attention_layernorm", "post_attention_norm", normWeight},
		{"linear_attn.in_proj_qkv", "attn_qkv", valueTail}, {"linear_attn.in_proj_z", "attn_gate", valueHeads},
		{"linear_attn.in_proj_b", "ssm_beta", valueHeads}, {"linear_attn.in_proj_a", "ssm_alpha", valueHeads},
		{"linear_attn.conv1d", "ssm_conv1d", valueConv}, {"linear_attn.norm", "ssm_norm", same},
		{"linear_attn.out_proj", "ssm_out", valueColumns},
	}), []name{{"linear_attn.A_log", "ssm_a", valueDecays}, {"linear_attn.dt_bias", "ssm_dt.bias", valueHeads}}}
	gpt2Names = names{"transformer.h.", []name{
		{"transformer.wte", "token_embd", same}, {"transformer.wpe", "position_embd", same}, {"transformer.ln_f", "output_norm", same},
		{"lm_head", "output", same},
	}, []name{
		{"ln_1", "attn_norm", same}, {"attn.c_attn", "attn_qkv", transposed}, {"attn.c_proj", "attn_output", transposed},
		{"ln_2", "ffn_norm", same}, {"mlp.c_fc", "ffn_up", transposed}, {"mlp.c_proj", "ffn_down", transposed},
	}, nil}
)

func join(parts ...[]name) (all []name) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// sides returns the name in the file that it is translated from, and the other one.
func (n name) sides(toGGUF bool) (from, to string) {
	if toGGUF {
		return n.hf, n.gguf
	}
	return n.gguf, n.hf
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
		for _, one := range n.full {
			if a, b := one.sides(toGGUF); a == part+suffix {
				return layer + b, one.change, true
			}
		}
	}
	for _, one := range table {
		a, b := one.sides(toGGUF)
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
