package stages

import (
	"fmt"
	"math"
)

// LatentConfig holds the sizes of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1). A head of queries and keys
// has Nope channels without rotary positions and Rope channels with them; the latter are the same for the keys of all heads. The zero
// value: the model has other attention.
type LatentConfig struct {
	QRank  int `json:",omitempty"` // width of the latent vector of queries; 0: they are a linear function of the input
	KVRank int // width of the latent vector of keys and values
	Nope   int
	Rope   int
	Value  int // channels of a head of values
	// Interleave says that channels 2i and 2i+1 of the Rope channels are a pair, not i and i+Rope/2.
	Interleave bool `json:",omitempty"`
}

// latentSwitch names this attention in errors.
const latentSwitch = "latent attention"

func (a LatentConfig) none() bool { return a == LatentConfig{} }

// width returns the channels of a head of queries and keys.
func (a LatentConfig) width() int { return a.Nope + a.Rope }

// headWidth returns the channels of a head in the operation of attention: the shorter of a head's keys and values has zeros behind.
func (a LatentConfig) headWidth() int { return max(a.width(), a.Value) }

// HasLatent reports whether models of a family have latent attention.
func HasLatent(family string) bool { return family == DeepSeekV3 }

func (c Config) checkLatent() error {
	a := c.Latent
	if a.none() {
		return nil
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"channels of the latent queries", a.QRank, 0, MaxHidden}, {"channels of the latent keys and values", a.KVRank, 1, MaxHidden},
		{"channels of a head without rotary positions", a.Nope, 1, MaxHidden},
		{"channels of a head with rotary positions", a.Rope, 2, MaxHidden}, {"channels of a head of values", a.Value, 1, MaxHidden},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%w: %s has %d %s: it must be from %d to %d", ErrModel, latentSwitch, f.value, f.name, f.min, f.max)
		}
	}
	switch {
	case a.Rope%2 != 0:
		return fmt.Errorf("%w: %s has %d channels of a head with rotary positions: it must be even", ErrModel, latentSwitch, a.Rope)
	case int64(c.Heads)*int64(max(a.headWidth(), a.Nope+a.Value)) > MaxHidden:
		return fmt.Errorf("%w: %d heads of %s, of %d and %d channels, exceed the limit of %d channels", ErrModel, c.Heads, latentSwitch,
			a.width(), a.Value, MaxHidden)
	case c.KVHeads != c.Heads:
		return fmt.Errorf("%w: %s has %d heads of keys and values for %d heads: the numbers must be the same", ErrModel, latentSwitch,
			c.KVHeads,
			c.Heads)
	case c.HeadDim != 0:
		return fmt.Errorf("%w: the heads of %s have widths of their own, but head_dim is %d: leave it out", ErrModel, latentSwitch,
			c.HeadDim)
	case c.Window != 0:
		return fmt.Errorf("%w: %s has no window: leave it out", ErrModel, latentSwitch)
	}
	return nil
}

// latentLayer gives a layer latent attention if the Config says so.
func (c Config) latentLayer(l *layerSpec) {
	if a := c.Latent; !a.none() {
		l.mixer, l.latent, l.scale = mixLatent, a, c.latentScale()
	}
}

// latentScale returns the factor of attention's scores. With yarn, mscale_all_dim changes it (transformers' yarn_apply_mscale).
func (c Config) latentScale() float64 {
	scale := 1 / math.Sqrt(float64(c.Latent.width()))
	if s := c.RopeScaling; s.MScaleAllDim != 0 {
		m := s.mscale(s.MScaleAllDim)
		scale *= float64(m * m)
	}
	return scale
}

// flops estimates the floating-point operations of the projections and of the products with positions seen.
func (a LatentConfig) flops(width, heads, seen float64) float64 {
	q, kv, d, v := float64(a.QRank), float64(a.KVRank), float64(a.width()), float64(a.Value)
	products := width*(kv+float64(a.Rope)) + kv*heads*float64(a.Nope+a.Value) + heads*v*width
	if a.QRank > 0 {
		products += width*q + q*heads*d
	} else {
		products += width * heads * d
	}
	return 2*products + 2*heads*(d+v)*seen
}
