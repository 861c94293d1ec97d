package stages_test

import (
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// The loss and the gradients of DoRA, from those of a model whose weights are m/‖V‖·V with V = W + s·B·A. Its norms count as
// constants.
func TestDoRA(t *testing.T) {
	dev := ref.New()
	t.Cleanup(dev.Close)
	plain := stages.Config{Family: stages.Llama, Layers: 1, Hidden: 8, Heads: 2, KVHeads: 1, FFN: 10, Context: 5, Vocab: 7, RopeTheta: 100,
		MLPBias: true, AttentionBias: true}
	c := plain
	c.Adapter = &stages.Adapter{Rank: 2, Alpha: 3, DoRA: true, Targets: []string{stages.AllLinear}}
	const scale = 1.5
	w, merged := newWhole(t, dev, c), newWhole(t, dev, plain)
	type matrix struct{ v, a, b, factor, norm []float64 }
	modules := make(map[string]matrix)
	for name, weight := range merged.weights {
		copy(weight, w.weights[name])
		module := strings.TrimSuffix(name, ".weight")
		mag := w.weights[module+stages.AdapterMagnitude]
		if mag == nil {
			continue
		}
		for i := range mag {
			mag[i] *= 1 + float32(i)/8
		}
		out := len(mag)
		in := len(weight) / out
		m := matrix{v: make([]float64, out*in)}
		for _, v := range w.weights[module+stages.AdapterA] {
			m.a = append(m.a, float64(v))
		}
		for _, v := range w.weights[module+stages.AdapterB] {
			m.b = append(m.b, float64(v))
		}
		for j := range out {
			var sum float64
			for i := range in {
				v := float64(weight[j*in+i])
				for k := range 2 {
					v += scale * m.b[j*2+k] * m.a[k*in+i]
				}
				m.v[j*in+i], sum = v, sum+v*v
			}
			m.norm = append(m.norm, math.Sqrt(sum))
			m.factor = append(m.factor, float64(mag[j])/m.norm[j])
			for i := range in {
				weight[j*in+i] = float32(m.factor[j] * m.v[j*in+i])
			}
		}
		modules[module] = m
	}
	if len(modules) != 7 {
		t.Fatalf("%d modules have an adapter", len(modules))
	}
	w.load()
	merged.load()
	mbs := microbatches(c, 3, 4, 2)
	if got, want := w.loss(mbs), merged.loss(mbs); math.Abs(got-want) > 1e-6*want {
		t.Errorf("the loss is %.9g, of the merged model %.9g", got, want)
	}
	got, of := w.grads(mbs), merged.grads(mbs)
	for module, m := range modules {
		d := of[module+".weight"] // of the factor times V
		out := len(m.norm)
		in := len(m.v) / out
		a, b, mag := make([]float64, 2*in), make([]float64, out*2), make([]float64, out)
		for j := range out {
			for i := range in {
				g := d[j*in+i]
				mag[j] += g * m.v[j*in+i] / m.norm[j]
				for k := range 2 {
					a[k*in+i] += scale * m.factor[j] * g * m.b[j*2+k]
					b[j*2+k] += scale * m.factor[j] * g * m.a[k*in+i]
				}
			}
		}
		for name, want := range map[string][]float64{stages.AdapterA: a, stages.AdapterB: b, stages.AdapterMagnitude: mag} {
			if off := apart(got[module+name], want); !(off < 1e-5) {
				t.Errorf("%s%s: the gradient is off by %.3g of its norm", module, name, off)
			}
		}
		if got[module+".weight"] != nil {
			t.Errorf("%s has a gradient, though it is frozen", module)
		}
	}
}
