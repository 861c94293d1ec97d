package ref_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// torchCase is a case of testdata/delta.json, which delta.py writes.
type torchCase struct {
	Sizes       [7]int // batch, positions, heads of keys, of values, their widths, taps
	Y, O, State []float64
	Grads       map[string][]float64
}

// numbers is what delta.py calls by this name.
func (p *tape) numbers(seed float64, dims ...int) tensorops.Tensor {
	x := p.zeros(tensorops.Float32, dims...)
	for i := range ref.Values(x) {
		ref.Values(x)[i] = math.Sin(seed+1.7*float64(i)) + 0.3*math.Cos(seed*float64(i))
	}
	return x
}

// TestLinearAttentionOfTorch compares the operations of linear attention, in the order in which Qwen3.5 has
// them, with transformers' own functions in float64.
func TestLinearAttentionOfTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/delta.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []torchCase
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		c.check(newTape(t))
	}
}

func (c torchCase) check(p *tape) {
	p.t.Helper()
	batch, positions, keyHeads, heads, dk, dv, taps := c.Sizes[0], c.Sizes[1], c.Sizes[2], c.Sizes[3], c.Sizes[4], c.Sizes[5], c.Sizes[6]
	rows, keys, values := batch*positions, keyHeads*dk, heads*dv
	x, conv := p.numbers(1, rows, 2*keys+values), p.numbers(2, 2*keys+values, taps)
	a, b, aLog, dtBias := p.numbers(3, rows, heads), p.numbers(4, rows, heads), p.numbers(5, heads), p.numbers(6, heads)
	z, gamma, dy := p.numbers(7, rows*heads, dv), p.numbers(8, dv), p.numbers(9, rows*heads, dv)
	zeros := func(like tensorops.Tensor) tensorops.Tensor { return p.zeros(tensorops.Float32, like.Shape()...) }
	mixed, gates, o, state := zeros(x), p.zeros(tensorops.Float32, rows, 2*heads), p.zeros(tensorops.Float32, rows, values),
		p.zeros(tensorops.Float32, batch, heads, dk, dv)
	n, stats, y := zeros(z), p.zeros(tensorops.Float32, rows*heads), zeros(z)
	split := func(t tensorops.Tensor) (q, k, v tensorops.Tensor) {
		return t.Columns(0, keys), t.Columns(keys, 2*keys), t.Columns(2*keys, t.Cols())
	}
	q, k, v := split(mixed)
	delta, taken := tensorops.DeltaOpts{Batch: batch, KeyHeads: keyHeads, ValueHeads: heads, Eps: 1e-6}, tensorops.ConvOpts{Batch: batch}
	p.run(func(l *tensorops.List) {
		l.CausalConv(mixed, x, conv, none, taken)
		l.DeltaGates(gates, a, b, aLog, dtBias, tensorops.DeltaGatesOpts{})
		l.GatedDelta(o, q, k, v, gates, state, delta)
		l.RMSNorm(n, o.View(rows*heads, dv), gamma, stats, tensorops.RMSNormOpts{Eps: 1e-6})
		l.SwiGLU(y, z, n)
	})
	p.near("y", y, c.Y)
	p.near("o", o, c.O)
	p.near("state", state, c.State)

	dz, dn, do, dgamma := zeros(z), zeros(z), zeros(z), zeros(gamma)
	dmixed, dx, dconv, dgates := zeros(x), zeros(x), zeros(conv), zeros(gates)
	da, db, daLog, ddtBias := zeros(a), zeros(b), zeros(aLog), zeros(dtBias)
	dq, dk2, dv2 := split(dmixed)
	p.run(func(l *tensorops.List) {
		l.SwiGLUGrad(dz, dn, dy, z, n)
		l.RMSNormWeightGrad(dgamma, dn, o.View(rows*heads, dv), stats)
		l.RMSNormGrad(do, dn, o.View(rows*heads, dv), gamma, stats, none, tensorops.RMSNormOpts{})
		l.GatedDeltaGrad(dq, dk2, dv2, dgates, do.View(rows, values), q, k, v, gates, delta)
		l.DeltaGatesGrad(da, db, dgates, gates, a, aLog, dtBias)
		l.DeltaGatesWeightGrad(daLog, ddtBias, dgates, gates, a, aLog, dtBias)
		l.CausalConvGrad(dx, dmixed, x, conv, taken)
		l.CausalConvWeightGrad(dconv, dmixed, x, conv, taken)
	})
	for name, t := range map[string]tensorops.Tensor{"x": dx, "conv": dconv, "a": da, "b": db, "a_log": daLog, "dt_bias": ddtBias, "z": dz,
		"norm": dgamma} {
		p.near("the gradient of "+name, t, c.Grads[name])
	}
}

// near compares numbers to a part in 10¹⁰ of their largest.
func (p *tape) near(what string, x tensorops.Tensor, want []float64) {
	p.t.Helper()
	got, largest, worst := ref.Values(x), 0.0, 0.0
	if len(got) != len(want) {
		p.t.Fatalf("%s has %d numbers, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		largest, worst = max(largest, math.Abs(w)), max(worst, math.Abs(got[i]-w))
	}
	if !(worst <= 1e-10*largest) {
		p.t.Errorf("%s: an error of %.3g, with numbers up to %.3g", what, worst, largest)
	}
}
