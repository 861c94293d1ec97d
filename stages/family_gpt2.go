package stages

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// GPT2 is the family of GPT-2: learned positions, LayerNorm, one projection for q, k and v, GELU,
// and biases everywhere.
const GPT2 = "gpt2"

type gpt2Family struct{}

func (gpt2Family) name() string  { return GPT2 }
func (gpt2Family) class() string { return "GPT2LMHeadModel" }

func (gpt2Family) layer(_ Config, _ int, l *layerSpec) {
	l.qkvBias, l.outputBias, l.mlpBias = true, true, true
	l.act.Act = tensorops.TanhGELU
}

func (gpt2Family) ends(Config, *endsSpec) {}

func (gpt2Family) defaults(*Config) {}

func (gpt2Family) check(c Config) error {
	switch {
	case c.KVHeads != c.Heads:
		return fmt.Errorf("%w: gpt2 needs as many kv_heads as heads, not %d and %d", ErrModel, c.KVHeads, c.Heads)
	case c.HeadDim != 0 || c.Window != 0 || c.Full != nil || c.AttentionBias || c.MLPBias || !c.RopeScaling.IsZero():
		return fmt.Errorf("%w: gpt2 has no head_dim, window or rotary positions, and always has biases: leave these keys out", ErrModel)
	}
	return c.onlySwitches(nil)
}

// build lists GPT-2's layers under the names of its published checkpoints, which store a linear
// layer's weight as [in, out].
func (gpt2Family) build(m *Model) {
	c := m.Config
	layerNorm := func(name string) norm {
		return norm{gamma: parted(m.add(name+".weight", ones, c.Hidden), bySequence),
			beta: parted(m.add(name+".bias", zeros, c.Hidden), bySequence), hasBeta: true, eps: c.eps()}
	}
	// conv's columns are in sections, made of units that stay together; its rows are cut row by
	// row.
	conv := func(name string, init Init, in, out, sections, units int) linear {
		l := linear{w: m.add(name+".weight", init, in, out), b: m.add(name+".bias", zeros, out), hasBias: true, inOut: true}
		return m.byColumns(l, sections, units)
	}
	row := func(name string, in, out, units int) linear {
		l := linear{w: m.add(name+".weight", m.residualInit(), in, out), b: m.add(name+".bias", zeros, out), hasBias: true, inOut: true}
		return m.byRows(l, units)
	}
	wte := m.cut(m.add("transformer.wte.weight", normalInit, c.Vocab, c.Hidden), vocabSplit(c))
	wpe := m.add("transformer.wpe.weight", normalInit, c.Positions(), c.Hidden) // a shorter context uses the first rows
	m.layers = append(m.layers, &embedding{tokens: wte, positions: wpe, hasPositions: true, width: c.Hidden,
		drop: site{"embedding", c.Dropout}})
	decoder := func(i int, at string) *block {
		b := &block{spec: c.layer(i).on(m.tensor), after1: norm{absent: true}, after2: norm{absent: true}}
		mix := &attentionMixer{spec: b.spec, heads: c.Heads, kvCopies: 1}
		mix.drop, b.drops = blockSites(i, c.Dropout)
		b.mixer = mix
		b.norm1 = layerNorm(at + ".ln_1")
		mix.qkv = []linear{conv(at+".attn.c_attn", normalInit, c.Hidden, 3*c.Hidden, 3, c.Heads)}
		b.proj = row(at+".attn.c_proj", c.Hidden, c.Hidden, c.Heads)
		b.norm2 = layerNorm(at + ".ln_2")
		ffn := &denseFFN{spec: b.spec, up: []linear{conv(at+".mlp.c_fc", normalInit, c.Hidden, c.FFN, 1, c.FFN)}}
		ffn.down = row(at+".mlp.c_proj", c.FFN, c.Hidden, c.FFN)
		b.ffn = ffn
		return b
	}
	m.addLayers("transformer.h", wte, layerNorm, decoder)
	m.addHead("transformer.ln_f", wte, layerNorm)
}

func (f gpt2Family) keys(r *reading) rules {
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value = 50257, 1024, 768, 12, 12
	r.eps.value, r.dropout.value, r.tie.value = 1e-5, 0.1, true
	return rules{
		"n_positions":             whole(&r.positions, 1, MaxContext),
		"max_position_embeddings": whole(&r.positions, 1, MaxContext),
		"n_embd":                  whole(&r.hidden, 1, MaxHidden),
		"hidden_size":             whole(&r.hidden, 1, MaxHidden),
		"n_layer":                 whole(&r.layers, 0, MaxLayers),
		"num_hidden_layers":       whole(&r.layers, 0, MaxLayers),
		"n_head":                  whole(&r.heads, 1, MaxHeads),
		"num_attention_heads":     whole(&r.heads, 1, MaxHeads),
		"n_inner":                 orNull(whole(&r.ffn, 1, MaxFFN)),
		"layer_norm_epsilon":      number(&r.eps, MinNormEps, maxNormEps),
		"resid_pdrop":             number(&r.dropout, 0, 1),
		"embd_pdrop":              number(new(said[float64]), 0, 1),
		"attn_pdrop":              number(new(said[float64]), 0, 1),
		"attention_dropout":       number(new(said[float64]), 0, 1), // which Troupe writes too

		"activation_function": only(`"gelu_new"`, `"gelu_pytorch_tanh"`), // two names of one function
		"scale_attn_weights":  only(`true`),
		// Scaling by layer is another model; the order of the scaling only changes rounding.
		"scale_attn_by_inverse_layer_idx": only(`false`, `null`),
		"reorder_and_upcast_attn":         neutral,
		"sliding_window":                  only(`null`),
		"use_sliding_window":              only(`false`, `null`),

		// Keys of an older release (its mask had n_ctx positions), and of heads that Troupe does
		// not have.
		"n_ctx": neutral, "n_special": neutral, "predict_special_tokens": neutral, "output_past": neutral,
		"summary_activation": neutral, "summary_first_dropout": neutral, "summary_proj_to_labels": neutral, "summary_type": neutral,
		"summary_use_proj": neutral,
	}
}

func (gpt2Family) read(*reading, *Config) error { return nil }

func (gpt2Family) write(c Config, h *hfWritten) {
	h.Positions, h.Embd, h.Layer, h.Head, h.Inner = c.Positions(), c.Hidden, &c.Layers, c.Heads, c.FFN
	h.Activation, h.NormEps, h.AttnDrop = "gelu_new", c.eps(), c.Dropout
}
