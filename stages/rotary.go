package stages

import "fmt"

// rotary is the common part of the families derived from Llama: RMSNorm, rotary positions, grouped
// heads, three projections, and SwiGLU. Their weights are stored as [out, in].
type rotary struct {
	qkvBias    bool // bias of the projections to q, k and v
	outputBias bool // bias of attention's output
	mlpBias    bool
	headNorms  bool // RMSNorm on each head of q and of k, before the rotation
}

func (rotary) gated() bool { return true }

func (rotary) check(c Config) error {
	d := c.headDim()
	switch {
	case d%2 != 0:
		return fmt.Errorf("%w: rotary positions need heads of even width, but hidden %d / heads %d is %d", ErrModel, c.Hidden, c.Heads, d)
	case c.Heads*d > MaxHidden:
		return fmt.Errorf("%w: %d heads of %d channels exceed the limit of %d channels", ErrModel, c.Heads, d, MaxHidden)
	case !(c.RopeTheta >= MinRopeTheta && c.RopeTheta <= MaxRopeTheta):
		return fmt.Errorf("%w: rope_theta is %g: it must be from %g to %g", ErrModel, c.RopeTheta, float64(MinRopeTheta), MaxRopeTheta)
	}
	if err := c.RopeScaling.check(); err != nil {
		return err
	}
	return c.checkWindow()
}

// build lists the layers under the names that these families share.
func (f rotary) build(m *Model) {
	c := m.Config
	rms := func(name string, width int, sum gradSum) norm {
		return norm{gamma: parted(m.add(name+".weight", ones, width), sum), rms: true, eps: c.eps()}
	}
	norm := func(name string) norm { return rms(name, c.Hidden, bySequence) }
	lin := func(name string, init Init, bias bool, in, out int) linear {
		l := linear{w: m.add(name+".weight", init, out, in)}
		if bias {
			l.b, l.hasBias = m.add(name+".bias", zeros, out), true
		}
		return l
	}
	// A column's units stay together, as heads do; the units of a row are its columns.
	column := func(name string, bias bool, out, units int) linear {
		return m.byColumns(lin(name, normalInit, bias, c.Hidden, out), 1, units)
	}
	row := func(name string, bias bool, in, units int) linear {
		return m.byRows(lin(name, m.residualInit(), bias, in, c.Hidden), units)
	}
	wte := m.cut(m.add("model.embed_tokens.weight", normalInit, c.Vocab, c.Hidden), vocabSplit(c))
	m.layers = append(m.layers, &embedding{tokens: wte, width: c.Hidden, drop: site{"embedding", c.Dropout}})
	decoder := func(i int, at string) *block {
		b := &block{cfg: m.local(), heads: c.Heads, drops: blockSites(i, c.Dropout), rotary: true, gated: true, window: c.window(i)}
		b.norm1 = norm(at + ".input_layernorm")
		b.qkv = []linear{
			column(at+".self_attn.q_proj", f.qkvBias, c.QueryWidth(), c.Heads),
			column(at+".self_attn.k_proj", f.qkvBias, c.KVWidth(), c.KVHeads),
			column(at+".self_attn.v_proj", f.qkvBias, c.KVWidth(), c.KVHeads),
		}
		b.proj = row(at+".self_attn.o_proj", f.outputBias, c.QueryWidth(), c.Heads)
		if f.headNorms {
			for _, name := range []string{"q_norm", "k_norm"} {
				b.headNorms = append(b.headNorms, rms(at+".self_attn."+name, c.headDim(), byHeads))
			}
		}
		b.norm2 = norm(at + ".post_attention_layernorm")
		b.up = []linear{
			column(at+".mlp.gate_proj", f.mlpBias, c.FFN, c.FFN),
			column(at+".mlp.up_proj", f.mlpBias, c.FFN, c.FFN),
		}
		b.down = row(at+".mlp.down_proj", f.mlpBias, c.FFN, c.FFN)
		return b
	}
	m.addLayers("model.layers", wte, norm, decoder)
	m.addHead("model.norm", wte, norm)
}

// keys returns the keys that these families share. A family that sets no default of its own has
// that of the first family.
func (rotary) keys(r *reading) rules {
	r.eps.value, r.theta.value = 1e-6, 10000
	return rules{
		"max_position_embeddings": whole(&r.positions, 1, MaxContext),
		"hidden_size":             whole(&r.hidden, 1, MaxHidden),
		"intermediate_size":       whole(&r.ffn, 1, MaxFFN),
		"num_hidden_layers":       whole(&r.layers, 0, MaxLayers),
		"num_attention_heads":     whole(&r.heads, 1, MaxHeads),
		"num_key_value_heads":     r.groups,
		"head_dim":                orNull(whole(&r.headDim, 1, MaxHidden)),
		"rms_norm_eps":            number(&r.eps, MinNormEps, maxNormEps),
		"rope_theta":              number(&r.theta, MinRopeTheta, MaxRopeTheta),
		"rope_parameters":         r.rope.read(r), // transformers 5 and later
		"rope_scaling":            r.rope.read(r), // earlier versions
		"attention_dropout":       orNull(number(&r.dropout, 0, 1)),
		"embd_pdrop":              number(new(said[float64]), 0, 1), // Troupe's
		"resid_pdrop":             number(new(said[float64]), 0, 1), // Troupe's
		"attn_pdrop":              number(new(said[float64]), 0, 1), // Troupe's

		"hidden_act":            only(`"silu"`, `"swish"`), // two names for one function
		"attention_bias":        only(`false`, `null`),
		"mlp_bias":              only(`false`, `null`),
		"partial_rotary_factor": only(`1`, `null`),
		"rope_interleaved":      only(`false`, `null`),
		"sliding_window":        only(`null`),
		"use_sliding_window":    only(`false`, `null`),
	}
}

func (rotary) read(r *reading, c *Config) (err error) {
	c.RopeTheta = r.theta.value
	c.RopeScaling, err = r.rope.scaling()
	return err
}

func (rotary) write(c Config, h *hfWritten) {
	h.Hidden, h.Intermediate, h.Layers, h.Heads, h.KVHeads = c.Hidden, c.FFN, &c.Layers, c.Heads, c.KVHeads
	h.HeadDim, h.MaxPositions, h.RMSEps, h.RopeTheta, h.HiddenAct = c.headDim(), c.Positions(), c.eps(), c.RopeTheta, "silu"
	h.LlamaDrop, h.RopeScaling = c.Dropout, c.RopeScaling.written()
}
