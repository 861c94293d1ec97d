package stages

import (
	"fmt"
	"maps"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// decoder is a family of decoder language models as a table: the sizes of transformers' own
// configuration class, the names of the tensors, the keys of config.json, and what a layer computes
// other than Llama's. Its methods make it a language. FAMILIES.md explains how to add one.
type decoder struct {
	model string // value of model.family and of config.json's model_type
	hf    string // class of transformers that computes the same
	sizes sizes
	names tensorNames
	own   []keySet // keys of config.json besides those of Llama
	// outer is a model of several kinds of data of which this is the text part; empty: there is none.
	outer outerModel
	// spec changes the description of a layer, which is Llama's with the Config's switches.
	spec func(c Config, i int, l *layerSpec)
	// finish changes the description of the embedding and of the head; nil: they are Llama's.
	finish func(c Config, e *endsSpec)
	// limits refuses what the family cannot have; nil: nothing.
	limits func(c Config) error
	// scratch sets the switches of a model that is trained from scratch, for which there is no key in
	// a run's configuration; nil: there are none.
	scratch func(c *Config)
	traits  ExpertTraits // of a family with experts: which settings of them it has
}

// sizes are the values of a configuration class whose keys a config.json leaves out.
type sizes struct {
	vocab, positions, hidden, layers, heads, ffn int
	kvHeads, headDim                             int // 0: as many as heads; hidden/heads
	eps, theta                                   float64
	tie                                          bool
}

// tensorNames are the names of tensors, without their ends .weight and .bias. Those of a layer's
// parts follow the layer's name and its number.
type tensorNames struct {
	embed, layers, norm string
	// The norms before and after attention and the feed-forward part, of which a layer has some.
	norm1, after1, norm2, after2 string
	q, k, v, o, qNorm, kNorm     string
	sinks                        string // without an end
	gate, up, down               string
	constant                     string // of the layer's output, without an end
	inputs                       inputNames
	// Tensors that hold several parameters, one after the other: q, k and v; gate and up. Empty: each
	// has its own.
	qkv, gateUp string
	delta       deltaNames // of layers with the gated delta rule
	latent      latentNames
	experts     expertNames
}

// inputNames are those of the inputs of each layer: the second embedding, the projection of the first one and its norm, and of
// each layer the gate, the projection and the norm after it.
type inputNames struct{ table, model, norm, gate, proj, after string }

// llamaNames are the names that most families share.
var llamaNames = tensorNames{
	embed: "model.embed_tokens", layers: "model.layers", norm: "model.norm",
	norm1: "input_layernorm", norm2: "post_attention_layernorm",
	q: "self_attn.q_proj", k: "self_attn.k_proj", v: "self_attn.v_proj", o: "self_attn.o_proj",
	qNorm: "self_attn.q_norm", kNorm: "self_attn.k_norm",
	gate: "mlp.gate_proj", up: "mlp.up_proj", down: "mlp.down_proj",
}

func (f *decoder) name() string  { return f.model }
func (f *decoder) class() string { return f.hf }

func (f *decoder) layer(c Config, i int, l *layerSpec) {
	l.gated, l.act.Act = true, tensorops.SiLU
	if !slices.Contains(c.NoRope, i) {
		l.rope = &ropeSpec{theta: c.RopeTheta, scaling: c.RopeScaling}
	}
	if f.spec != nil {
		f.spec(c, i, l)
	}
}

func (f *decoder) ends(c Config, e *endsSpec) {
	if f.finish != nil {
		f.finish(c, e)
	}
}

func (f *decoder) defaults(c *Config) {
	if f.scratch != nil {
		f.scratch(c)
	}
}

func (f *decoder) check(c Config) error {
	d := c.headDim()
	if !c.Latent.none() {
		d = c.Latent.Rope // checkLatent checked the widths of heads
	}
	switch {
	case d%2 != 0 && c.RopeScaling.Partial == 0:
		return fmt.Errorf("%w: rotary positions need heads of even width, but hidden %d / heads %d is %d", ErrModel, c.Hidden, c.Heads, d)
	case c.Heads*d > MaxHidden:
		return fmt.Errorf("%w: %d heads of %d channels exceed the limit of %d channels", ErrModel, c.Heads, d, MaxHidden)
	case !(c.RopeTheta >= MinRopeTheta && c.RopeTheta <= MaxRopeTheta):
		return fmt.Errorf("%w: rope_theta is %g: it must be from %g to %g", ErrModel, c.RopeTheta, float64(MinRopeTheta), MaxRopeTheta)
	}
	var has []string
	for _, set := range f.keySets() {
		has = append(has, set.switches...)
	}
	if err := c.onlySwitches(has); err != nil {
		return err
	}
	if f.limits != nil {
		if err := f.limits(c); err != nil {
			return err
		}
	}
	if err := c.RopeScaling.check(c.RopeTheta, d); err != nil {
		return err
	}
	return c.checkWindow()
}

// build lists the layers.
func (f *decoder) build(m *Model) {
	c := m.Config
	m.passing = c.passing()
	wte := m.cut(m.add(f.names.embed+".weight", normalInit, c.Vocab, c.Hidden), vocabSplit(c))
	ends := c.ends()
	m.layers = append(m.layers, &embedding{tokens: wte, width: c.Hidden, factor: ends.embedding, drop: site{"embedding", c.Dropout},
		inputs: f.inputs(m)})
	norm := func(name string) norm { return m.rmsNorm(name, c.Hidden, ends.normOffset, bySequence) }
	m.addLayers(f.names.layers, wte, norm, func(i int, at string) *block { return f.block(m, i, at+".") })
	m.addHead(f.names.norm, wte, norm)
}

// rmsNorm adds an RMSNorm over width channels. At first its weight plus the offset is 1.
func (m *Model) rmsNorm(name string, width int, offset float64, sum gradSum) norm {
	return norm{gamma: parted(m.add(name+".weight", Init{Const: 1 - offset}, width), sum), rms: true, eps: m.Config.eps(), offset: offset}
}

// block adds a decoder layer, whose names start with at.
func (f *decoder) block(m *Model, i int, at string) *block {
	c, spec := m.Config, m.Config.layer(i)
	b := &block{spec: spec.on(m.tensor), carries: m.passing.carrying(i, &spec)}
	var drop site
	drop, b.drops = blockSites(i, c.Dropout)
	norm := func(name string, has bool) norm {
		if !has {
			return norm{absent: true}
		}
		return m.rmsNorm(at+name, c.Hidden, spec.normOffset, bySequence)
	}
	b.norm1 = norm(f.names.norm1, spec.before())
	switch spec.mixer {
	case mixDelta:
		b.mixer, b.proj = f.delta(m, spec, at)
	case mixLatent:
		b.mixer, b.proj = f.latent(m, spec, at, drop)
	default:
		b.mixer, b.proj = f.attention(m, spec, at, drop)
	}
	b.after1 = norm(f.names.after1, spec.after())
	b.norm2 = norm(f.names.norm2, spec.before())
	if spec.experts.count > 0 {
		b.ffn = f.experts(m, spec, at)
	} else {
		b.ffn = f.dense(m, spec, at)
	}
	b.after2 = norm(f.names.after2, spec.after())
	if spec.input > 0 {
		b.input = f.input(m, i, spec, at)
	}
	if spec.constant {
		b.constant = m.constant(at + f.names.constant)
	}
	return b
}

// dense adds a dense feed-forward part.
func (f *decoder) dense(m *Model, spec layerSpec, at string) feedForward {
	ffn := &denseFFN{spec: spec.on(m.tensor)}
	if spec.gated {
		ffn.up = append(ffn.up, f.column(m, at+f.names.gate, spec.mlpBias, spec.ffn, spec.ffn))
	}
	ffn.up = append(ffn.up, f.column(m, at+f.names.up, spec.mlpBias, spec.ffn, spec.ffn))
	m.storedIn(at+f.names.gateUp, f.names.gateUp != "", ffn.up)
	ffn.down = f.row(m, at+f.names.down, spec.mlpBias, spec.ffn, spec.ffn)
	return ffn
}

// attention adds a layer's attention and its output projection.
func (f *decoder) attention(m *Model, spec layerSpec, at string, drop site) (mixer, linear) {
	mix := &attentionMixer{spec: spec.on(m.tensor), heads: spec.heads, drop: drop}
	mix.kvCopies = Split{Units: spec.kvHeads}.replicas(m.tensor.size())
	mix.qkv = []linear{f.column(m, at+f.names.q, spec.qkvBias, spec.projectedQueries(), spec.heads)}
	if !spec.shares {
		mix.qkv = append(mix.qkv, f.column(m, at+f.names.k, spec.qkvBias, spec.kvWidth(), spec.kvHeads))
	}
	if !spec.shares && !spec.valuesAreKeys {
		mix.qkv = append(mix.qkv, f.column(m, at+f.names.v, spec.qkvBias, spec.kvWidth(), spec.kvHeads))
	}
	m.storedIn(at+f.names.qkv, f.names.qkv != "", mix.qkv)
	proj := f.row(m, at+f.names.o, spec.outputBias, spec.queryWidth(), spec.heads)
	qk := func(q, k int, sum gradSum) {
		mix.qkNorms = append(mix.qkNorms, m.rmsNorm(at+f.names.qNorm, q, spec.normOffset, sum))
		if !spec.shares {
			mix.qkNorms = append(mix.qkNorms, m.rmsNorm(at+f.names.kNorm, k, spec.normOffset, sum))
		}
	}
	switch spec.qkNorm {
	case qkNormHeads:
		qk(spec.headDim, spec.headDim, byHeads)
	case qkNormWidth: // every rank computes all of them
		qk(spec.queryWidth(), spec.kvWidth(), alike)
	}
	if spec.sinks {
		mix.sinks = m.cut(m.add(at+f.names.sinks, zeros, spec.heads), Split{0, 1, spec.heads})
	}
	return mix, proj
}

// linear adds a linear layer whose weight is stored as [out, in].
func (f *decoder) linear(m *Model, name string, init Init, bias bool, in, out int) linear {
	l := linear{w: m.add(name+".weight", init, out, in)}
	if bias {
		l.b, l.hasBias = m.add(name+".bias", zeros, out), true
	}
	return l
}

// whole adds a linear layer that every rank of a tensor-parallel group has.
func (f *decoder) whole(m *Model, name string, init Init, bias bool, in, out int) linear {
	l := f.linear(m, name, init, bias, in, out)
	l.out = out
	return l
}

// column adds a linear layer that tensor parallelism splits by its outputs. A column's units stay
// together, as heads do.
func (f *decoder) column(m *Model, name string, bias bool, out, units int) linear {
	return m.byColumns(f.linear(m, name, normalInit, bias, m.Config.Hidden, out), 1, units)
}

// row adds a linear layer that tensor parallelism splits by its inputs.
func (f *decoder) row(m *Model, name string, bias bool, in, units int) linear {
	return m.byRows(f.linear(m, name, m.residualInit(), bias, in, m.Config.Hidden), units)
}

// keys returns the rules for the keys of a config.json. Where two sets have the same key, the later
// one counts.
func (f *decoder) keys(r *reading) rules {
	s := f.sizes
	r.vocab.value, r.positions.value, r.hidden.value, r.layers.value, r.heads.value, r.ffn.value = s.vocab, s.positions, s.hidden, s.layers,
		s.heads, s.ffn
	r.kvHeads.value, r.headDim.value, r.eps.value, r.theta.value, r.tie.value = s.kvHeads, s.headDim, s.eps, s.theta, s.tie
	own := make(rules)
	for _, set := range f.keySets() {
		maps.Copy(own, set.rules(r))
	}
	return own
}

func (f *decoder) keySets() []keySet { return append([]keySet{llamaKeys}, f.own...) }

func (f *decoder) read(r *reading, c *Config) error {
	for _, set := range f.keySets() {
		if set.read != nil {
			if err := set.read(r, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *decoder) write(c Config, h *hfWritten) {
	for _, set := range f.keySets() {
		if set.write != nil {
			set.write(c, h)
		}
	}
}
