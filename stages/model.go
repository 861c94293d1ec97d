package stages

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// The symbols of layers, as in the layout language.
const (
	SymbolEmbedding = 'E'
	SymbolDecoder   = 't'
	SymbolMTP       = 'm' // multi-token prediction
	SymbolLoss      = 'L'
)

// Model is a family's list of layers for given sizes: E, then Layers times t, MTPLayers times m,
// then L. It holds no tensors, and all stages share it.
type Model struct {
	Config Config
	Params []*Param // in the model's order, which is also the order of global sums
	layers []layer
	wires  []wire // inputs and outputs of each layer
	values []value
	froze  bool // some weights are frozen, by Freeze or by an adapter
	thawed []string
	tensor TensorParallel
	expert ExpertParallel
	// passing is what the decoder layers pass on beside the residual stream.
	passing passing
}

// layer is one symbol of the layout: a unary layer of the language models, or a unit.
type layer interface {
	symbol() byte
	uses() []use
	linears() []*linear
	newState() state
}

// unary is a layer with at most one input and one output. Its three passes record operations. What
// a forward saves for the other two is in a state, one for each microbatch in flight.
type unary interface {
	layer
	// forward returns the output. It owns x, and frees it or keeps it in st.
	forward(c *pass, st state, x tensorops.Tensor) tensorops.Tensor
	// inputGrad takes the output's gradient, which it owns, and returns the input's (invalid for
	// the embedding). It leaves what weightGrad needs in st.
	inputGrad(c *pass, st state, dy tensorops.Tensor) tensorops.Tensor
	// weightGrad adds to the gradients of the layer's uses and frees all of st.
	weightGrad(c *pass, st state)
}

// state is what a layer keeps of one microbatch.
type state interface {
	// drop frees everything except the layer's input, for recomputation; with all it frees the
	// input, too.
	drop(l *tensorops.List, all bool)
}

// NewModel checks the sizes and lists the layers and parameters. The error is ErrModel.
func NewModel(c Config) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &Model{Config: c}
	f := languageOf(c.Family)
	if f == nil {
		return m, m.buildOwn()
	}
	f.build(m)
	m.markHidden()
	m.chain()
	if err := m.adapt(); err != nil {
		return nil, err
	}
	if m.froze {
		m.stopGradients()
	}
	return m, nil
}

// language reports whether the model is a language model, whose data is tokens.
func (m *Model) language() bool { return m.Config.Language() }

// Symbols returns the sequence that a layout must cover.
func (m *Model) Symbols() string {
	s := make([]byte, len(m.layers))
	for i, l := range m.layers {
		s[i] = l.symbol()
	}
	return string(s)
}

// add adds a parameter.
func (m *Model) add(name string, init Init, shape ...int) use {
	p := &Param{Name: name, Index: len(m.Params), Shape: shape, Whole: shape, Decay: len(shape) > 1, Init: init,
		places: [numPlaces]bool{placeOwn: true}}
	m.Params = append(m.Params, p)
	return use{param: p}
}

// constant adds a number that is not trained; at first it is 1.
func (m *Model) constant(name string) use {
	u := m.add(name, ones, 1)
	u.param.Constant, u.param.Frozen = true, true
	return u
}

// tied makes another use of a parameter.
func tied(u use, place int) use {
	u.param.places[place] = true
	return use{param: u.param, place: place}
}

// The initialization of all families: a normal distribution with standard deviation 0.02; for
// projections to the residual stream it is smaller by a factor of 1/√(2·layers) (GPT-2).
const initStd = 0.02

func (m *Model) residualInit() Init {
	return Init{Std: initStd / math.Sqrt(2*float64(max(m.Config.Layers, 1)))}
}

var (
	normalInit = Init{Std: initStd}
	zeros      = Init{}
	ones       = Init{Const: 1}
)

// addLayers lists the layers between embedding and head. The layers of multi-token prediction
// continue the numbers of the decoder layers. Their additional parts are named as in DeepSeek-V3's
// checkpoints: enorm, hnorm and eh_proj.
func (m *Model) addLayers(prefix string, wte use, norm func(name string) norm, decoder func(i int, at string) *block) {
	c := m.Config
	name := func(i int) string { return fmt.Sprintf("%s.%d", prefix, i) }
	for i := range c.Layers {
		m.layers = append(m.layers, decoder(i, name(i)))
	}
	for k := range c.MTPLayers {
		i := c.Layers + k
		d := &mtp{depth: k + 1, width: c.Hidden, tokens: tied(wte, placeMTP), factor: c.ends().embedding}
		d.enorm, d.hnorm = norm(name(i)+".enorm"), norm(name(i)+".hnorm")
		// Every rank of a tensor-parallel group has all of it.
		d.proj = linear{w: parted(m.add(name(i)+".eh_proj.weight", normalInit, c.Hidden, 2*c.Hidden), bySequence), out: c.Hidden}
		d.block = decoder(i, name(i))
		m.layers = append(m.layers, d)
	}
}

// addHead lists the last layer.
func (m *Model) addHead(name string, wte use, norm func(name string) norm) {
	c := m.Config
	ends := c.ends()
	h := &head{norm: norm(name), whole: c.Vocab, further: c.MTPLayers, softCap: ends.logitSoftCap}
	if ends.logitDivisor != 0 {
		h.factor = 1 / ends.logitDivisor
	}
	if h.further > 0 {
		h.weight = c.MTPWeight / float64(h.further)
	}
	h.proj = m.headLinear(wte)
	h.vocab, h.first = h.proj.out, h.proj.w.param.Slice.From
	m.layers = append(m.layers, h)
}

// headLinear returns the projection to the vocabulary: with the embedding's weight, or its own.
func (m *Model) headLinear(wte use) linear {
	c := m.Config
	var w use
	if c.Tie {
		w = tied(wte, placeHead)
	} else {
		w = m.cut(m.add("lm_head.weight", normalInit, c.Vocab, c.Hidden), vocabSplit(c))
	}
	return linear{w: w, out: w.param.Shape[0]}
}

// ParametersOf returns the number of weights that chunks use, each counted once.
func (m *Model) ParametersOf(chunks []ChunkSpec) int64 {
	return m.count(chunks, func(*Param) bool { return true })
}

// TrainedOf returns the number of trained weights that chunks use.
func (m *Model) TrainedOf(chunks []ChunkSpec) int64 {
	return m.count(chunks, func(p *Param) bool { return !p.Frozen })
}

// ParameterNames returns the names of the weights that chunks use.
func (m *Model) ParameterNames(chunks []ChunkSpec) map[string]bool {
	names := make(map[string]bool)
	m.count(chunks, func(p *Param) bool {
		names[p.Name] = true
		return true
	})
	return names
}

// ReadsData reports whether a layer of a chunk takes tokens, targets or fields of samples, or
// computes the loss from them.
func (m *Model) ReadsData(c ChunkSpec) bool {
	return slices.ContainsFunc(m.layers[c.First:c.Last], func(l layer) bool {
		u, own := l.(*unit)
		return own && len(u.fields) > 0 || !own && l.symbol() == SymbolEmbedding || l.symbol() == SymbolMTP || l.symbol() == SymbolLoss
	})
}

func (m *Model) count(chunks []ChunkSpec, counts func(*Param) bool) int64 {
	var n int64
	seen := make(map[*Param]bool)
	for _, c := range chunks {
		for _, l := range m.layers[c.First:c.Last] {
			for _, u := range l.uses() {
				if !seen[u.param] && counts(u.param) {
					seen[u.param] = true
					n += int64(u.param.Len())
				}
			}
		}
	}
	return n
}
