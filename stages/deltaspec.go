package stages

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// DeltaConfig holds the sizes of the decoder layers that mix positions with the gated delta rule
// (Qwen3.5's linear attention). The zero value: the model has none.
type DeltaConfig struct {
	Layers     []int // in ascending order; the others have attention
	KeyHeads   int   // heads of queries and keys
	ValueHeads int   // heads of values, a multiple of KeyHeads
	KeyWidth   int   // channels of a head of queries and keys
	ValueWidth int   // channels of a head of values
	Taps       int   // rows that the causal convolution covers
}

// deltaSwitch names these layers in errors.
const deltaSwitch = "gated delta rule layers"

func (d DeltaConfig) none() bool { return len(d.Layers) == 0 }

func (c Config) checkDelta() error {
	d := c.Delta
	if d.none() {
		if d.KeyHeads != 0 || d.ValueHeads != 0 || d.KeyWidth != 0 || d.ValueWidth != 0 || d.Taps != 0 {
			return fmt.Errorf("%w: the %s have sizes, but no layer is listed", ErrModel, deltaSwitch)
		}
		return nil
	}
	for _, f := range []struct {
		name       string
		value, max int
	}{
		{"key heads", d.KeyHeads, MaxHeads}, {"value heads", d.ValueHeads, MaxHeads},
		{"channels of a key head", d.KeyWidth, tensorops.MaxDeltaWidth}, {"channels of a value head", d.ValueWidth, tensorops.MaxDeltaWidth},
		{"taps of the convolution", d.Taps, tensorops.MaxConvTaps},
	} {
		if f.value < 1 || f.value > f.max {
			return fmt.Errorf("%w: the %s have %d %s: it must be from 1 to %d", ErrModel, deltaSwitch, f.value, f.name, f.max)
		}
	}
	switch {
	case d.ValueHeads%d.KeyHeads != 0:
		return fmt.Errorf("%w: the %s have %d value heads, which is not a multiple of the %d key heads", ErrModel, deltaSwitch, d.ValueHeads,
			d.KeyHeads)
	case d.KeyHeads*d.KeyWidth > MaxHidden || d.ValueHeads*d.ValueWidth > MaxHidden:
		return fmt.Errorf("%w: the heads of the %s exceed the limit of %d channels", ErrModel, deltaSwitch, MaxHidden)
	}
	return c.checkLayers(deltaSwitch, d.Layers)
}

// deltaSpec describes the gated delta rule of a layer.
type deltaSpec struct{ keyHeads, valueHeads, keyWidth, valueWidth, taps int }

// deltaLayer makes layer i one of the gated delta rule if the Config says so.
func (c Config) deltaLayer(i int, l *layerSpec) {
	if d := c.Delta; slices.Contains(d.Layers, i) {
		l.mixer = mixDelta
		l.delta = deltaSpec{d.KeyHeads, d.ValueHeads, d.KeyWidth, d.ValueWidth, d.Taps}
	}
}

func (d deltaSpec) keys() int   { return d.keyHeads * d.keyWidth }
func (d deltaSpec) values() int { return d.valueHeads * d.valueWidth }

// on returns the sizes on one rank of a tensor-parallel group.
func (d deltaSpec) on(size int) deltaSpec {
	d.keyHeads, d.valueHeads = d.keyHeads/size, d.valueHeads/size
	return d
}

// deltaNames are the names in layers with the gated delta rule. The tensors qkv and taps hold q, k and v
// one after the other; their parts have their own names in a run. Those of aLog and dtBias have no end.
type deltaNames struct {
	qkv, q, k, v, z, b, a, taps, norm, o string
	aLog, dtBias                         string
}

// delta adds a layer's gated delta rule and its output projection.
func (f *decoder) delta(m *Model, spec layerSpec, at string) (mixer, linear) {
	d, n := spec.delta, f.names.delta
	mix := &deltaMixer{spec: d.on(m.tensor.size())}
	names, heads, widths := [3]string{n.q, n.k, n.v}, [3]int{d.keyHeads, d.keyHeads, d.valueHeads}, [3]int{d.keys(), d.keys(), d.values()}
	for i, name := range names {
		mix.qkv[i] = f.column(m, at+name, false, widths[i], heads[i])
	}
	m.storedIn(at+n.qkv, true, mix.qkv[:])
	mix.z = f.column(m, at+n.z, false, d.values(), d.valueHeads)
	mix.b = f.column(m, at+n.b, false, d.valueHeads, d.valueHeads)
	mix.a = f.column(m, at+n.a, false, d.valueHeads, d.valueHeads)
	row := 0
	for i, name := range names {
		mix.taps[i] = m.cut(m.add(at+name+".conv1d.weight", normalInit, widths[i], 1, d.taps), Split{0, 1, heads[i]})
		mix.taps[i].param.Stored = Stored{Name: at + n.taps + ".weight", Row: row, Rows: 2*d.keys() + d.values()}
		row += widths[i]
	}
	mix.aLog = m.cut(m.add(at+n.aLog, decayInit, d.valueHeads), Split{0, 1, d.valueHeads})
	mix.dtBias = m.cut(m.add(at+n.dtBias, ones, d.valueHeads), Split{0, 1, d.valueHeads})
	mix.norm = m.rmsNorm(at+n.norm, d.valueWidth, 0, byHeads)
	return mix, f.row(m, at+n.o, false, d.values(), d.valueHeads)
}

// decayInit is about what transformers begins with: the logarithm of numbers up to 16.
var decayInit = Init{Std: 1, Const: 1.75}

// flops estimates the floating-point operations of the mixer's forward pass for one token: the
// projections, and three products of a position's keys with the state.
func (d deltaSpec) flops(width float64) float64 {
	k, v := float64(d.keys()), float64(d.values())
	return 2*width*(2*k+2*v+2*float64(d.valueHeads)) + 2*v*width + 2*float64(d.taps)*(2*k+v) + 6*v*float64(d.keyWidth)
}
