package stages

import (
	"cmp"

	"github.com/troupe-ml/troupe/tensorops"
)

// layerSpec describes one decoder layer: what it computes, and its sizes. Config.layer makes it from
// the model's switches and its family's table, for each layer by itself; block records it.
type layerSpec struct {
	heads, kvHeads, headDim int // of queries, of keys and values; channels of a head
	ffn                     int // inner width of the feed-forward part

	mixer  mixerKind
	delta  deltaSpec    // of mixDelta
	latent LatentConfig // of mixLatent

	// Attention.
	window  int       // positions to which a query attends, including its own; 0: all
	rope    *ropeSpec // rotary positions; nil: none
	scale   float64   // factor of the scores; 0: 1/√headDim
	softCap float64   // limit of the scaled scores; 0: none
	sinks   bool      // a learned sink for each head
	qkNorm  qkNorm
	// outputGate says that attention's output is multiplied by σ of a projection, which is the second
	// half of each head of the projection to queries.
	outputGate bool
	// valuesAreKeys says that the values are the keys before their norm: there is no projection of their own.
	valuesAreKeys bool
	valueNorm     bool // each head of the values is normalized, without a weight
	// keeps says that later layers use this layer's keys and values, shares that this layer has none and uses those of layer source. A
	// layer that keeps them must have norms of all three, whose outputs are tensors of their own.
	keeps, shares bool
	source        int // of keeps: the layer itself

	norms      normPlaces
	normOffset float64 // added to the weights of the norms; 1: the weight is 1+w

	qkvBias, outputBias, mlpBias bool

	experts expertSpec // of the feed-forward part; none: it is dense

	gated bool               // the feed-forward part has a gate and so three products
	act   tensorops.GateOpts // its activation; the limits only count for a gate

	input int // channels of the layer's own input; 0: it has none

	// constant is a number in the layer's file by which its output is multiplied; it is not trained.
	constant bool

	residual float64 // factor of each branch before it is added to the residual stream; 0: 1
}

// mixerKind is what a layer does between its positions.
type mixerKind uint8

const (
	mixAttention mixerKind = iota
	mixDelta               // the gated delta rule
	mixLatent              // latent attention
)

// qkNorm says how queries and keys are normalized before they are rotated.
type qkNorm uint8

const (
	noQKNorm    qkNorm = iota
	qkNormHeads        // each head by itself, with one weight for all heads
	qkNormWidth        // all heads together
)

// normPlaces says where a layer has norms.
type normPlaces uint8

const (
	normsBefore normPlaces = iota // before attention and before the feed-forward part
	normsAfter                    // after each of them, before the sum
	normsBoth
)

// ropeSpec describes the rotary positions of a layer.
type ropeSpec struct {
	theta   float64
	scaling RopeScaling
}

// endsSpec describes what a model does before and after its decoder layers.
type endsSpec struct {
	embedding    float64 // factor of the embeddings; 0: 1
	normOffset   float64 // added to the weight of the last norm
	logitDivisor float64 // 0: 1
	logitSoftCap float64 // 0: none
}

// ends returns the description of the embedding and of the head.
func (c Config) ends() endsSpec {
	e := endsSpec{embedding: c.EmbeddingScale, logitDivisor: c.LogitDivisor, logitSoftCap: c.LogitSoftCap}
	languageOf(c.Family).ends(c, &e)
	return e
}

// layer returns the description of decoder layer i. Layers of multi-token prediction follow the
// decoder layers.
func (c Config) layer(i int) layerSpec {
	l := layerSpec{heads: c.Heads, kvHeads: c.KVHeads, headDim: c.headDim(), ffn: c.FFN, window: c.window(i), scale: c.AttentionScale,
		softCap: c.AttentionSoftCap, qkvBias: c.AttentionBias, outputBias: c.AttentionBias, mlpBias: c.MLPBias, residual: c.ResidualScale}
	c.deltaLayer(i, &l)
	c.expertLayer(i, &l)
	c.latentLayer(&l)
	languageOf(c.Family).layer(c, i, &l)
	return l
}

// shareKV says whose keys and values decoder layer i uses.
func (c Config) shareKV(i int, l *layerSpec) {
	l.source = c.keysOf(i)
	l.keeps, l.shares = c.keepsKV(i), l.source != i
}

// windowTheta returns the base of the rotary wavelengths in layers with a window.
func (c Config) windowTheta() float64 { return cmp.Or(c.WindowTheta, c.RopeTheta) }

func (l *layerSpec) queryWidth() int { return l.heads * l.headDim }

// projectedQueries returns the width of the projection to queries, with that of the output gate.
func (l *layerSpec) projectedQueries() int {
	if l.outputGate {
		return 2 * l.queryWidth()
	}
	return l.queryWidth()
}

func (l *layerSpec) kvWidth() int { return l.kvHeads * l.headDim }

func (l *layerSpec) before() bool { return l.norms != normsAfter }
func (l *layerSpec) after() bool  { return l.norms != normsBefore }

// on returns the layer's sizes on one rank of a tensor-parallel group.
func (l layerSpec) on(t TensorParallel) layerSpec {
	if size := t.size(); size > 1 {
		l.heads, l.kvHeads = l.heads/size, max(1, l.kvHeads/size)
		l.delta = l.delta.on(size)
	}
	return l
}

// flops estimates the floating-point operations of a forward pass for one token, at a sequence
// length of positions in a model of the given width.
func (l *layerSpec) flops(width, positions int) float64 {
	h, f, q, kv := float64(width), float64(l.ffn), float64(l.queryWidth()), float64(l.kvWidth())
	mlp := 4 * h * f
	if l.gated {
		mlp = 6 * h * f
	}
	if l.experts.count > 0 {
		mlp = l.experts.flops(h)
	}
	if l.mixer == mixDelta {
		return l.delta.flops(h) + mlp
	}
	if l.mixer == mixLatent {
		return l.latent.flops(h, float64(l.heads), seen(l.window, positions)) + mlp
	}
	if l.outputGate {
		mlp += 2 * h * q
	}
	if l.shares {
		kv = 0
	}
	return 2*h*(q+2*kv) + 2*q*h + mlp + 4*q*seen(l.window, positions) + 4*h*float64(l.input)
}

// seen estimates the average number of positions to which a query attends.
func seen(window, positions int) float64 {
	w, all := float64(window), float64(positions)
	if w == 0 || w >= all {
		return all / 2
	}
	return w - w*w/(2*all)
}
