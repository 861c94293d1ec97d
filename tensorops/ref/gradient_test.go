package ref_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// none is the operand that is left out.
var none tensorops.Tensor

// tape is a stream with tensors on it; what goes wrong ends the test.
type tape struct {
	t      *testing.T
	stream tensorops.Stream
	inputs uint64
}

func newTape(t *testing.T) *tape {
	dev := ref.New()
	t.Cleanup(dev.Close)
	return &tape{t: t, stream: dev.NewStream("gradient")}
}

// run records a list and waits for it.
func (p *tape) run(record func(l *tensorops.List)) {
	p.t.Helper()
	l := p.stream.NewList()
	record(l)
	if err := tensorops.Run(p.stream, l); err != nil {
		p.t.Fatal(err)
	}
}

// zeros makes a tensor full of zeros.
func (p *tape) zeros(dtype tensorops.DType, dims ...int) (x tensorops.Tensor) {
	p.t.Helper()
	p.run(func(l *tensorops.List) {
		x = l.Alloc(dtype, dims...)
		l.Fill(x, 0)
	})
	return x
}

// normal makes a tensor of standard normal deviates.
func (p *tape) normal(dims ...int) tensorops.Tensor {
	p.t.Helper()
	x := p.zeros(tensorops.Float32, dims...)
	p.inputs++
	numbers := make([]float32, x.Len())
	rng.Normal(numbers, rng.NewKey(rng.StringStream(p.t.Name()), p.inputs), 0, 0, 1)
	for i, v := range numbers {
		ref.Values(x)[i] = float64(v)
	}
	return x
}

// ids makes a tensor of token ids or targets.
func (p *tape) ids(ids ...int32) tensorops.Tensor {
	p.t.Helper()
	x := p.zeros(tensorops.Int32, len(ids))
	p.run(func(l *tensorops.List) { l.Upload(x, tensorops.HostBytes(ids)) })
	return x
}

// starts makes a tensor of starts, or none.
func (p *tape) starts(of []int32) tensorops.Tensor {
	if of == nil {
		return none
	}
	return p.ids(of...)
}

// like makes tensors of zeros in the shapes of others.
func (p *tape) like(ts []tensorops.Tensor) []tensorops.Tensor {
	p.t.Helper()
	var zeros []tensorops.Tensor
	for _, t := range ts {
		zeros = append(zeros, p.zeros(t.DType(), t.Shape()...))
	}
	return zeros
}

// function is an operation as a function of tensors: it makes its outputs from
// its inputs, and from the outputs' gradients the inputs'. Gradients begin at
// zero, so that both kinds of operation fit: those that replace a gradient and
// those that add to it.
type function struct {
	inputs, outputs []tensorops.Tensor
	forward         func(l *tensorops.List)
	grad            func(l *tensorops.List, dout, din []tensorops.Tensor)
}

// checkGradient compares the gradient of Σ outputs·r, r random, with central
// differences at every element of every input.
func checkGradient(p *tape, f function) {
	p.t.Helper()
	var dout []tensorops.Tensor
	for _, out := range f.outputs {
		dout = append(dout, p.normal(out.Shape()...))
	}
	functional := func() float64 {
		p.run(f.forward)
		var sum float64
		for i, out := range f.outputs {
			for j, v := range ref.Values(out) {
				sum += v * ref.Values(dout[i])[j]
			}
		}
		return sum
	}
	functional()
	din := p.like(f.inputs)
	p.run(func(l *tensorops.List) { f.grad(l, dout, din) })

	const h, tolerance = 1e-5, 1e-7
	for i, in := range f.inputs {
		got := ref.Values(din[i])
		want := make([]float64, len(got))
		var scale float64
		values := ref.Values(in)
		for j, v := range values {
			values[j] = v + h
			above := functional()
			values[j] = v - h
			below := functional()
			values[j] = v
			want[j] = (above - below) / (2 * h)
			scale = max(scale, math.Abs(want[j]))
		}
		for j := range got {
			if !(math.Abs(got[j]-want[j]) <= tolerance*max(scale, 1)) {
				p.t.Errorf("gradient of input %d, element %d of %v: %.10g, the central difference is %.10g", i, j, in, got[j], want[j])
				break
			}
		}
	}
}

// tensors spares the type in calls.
func tensors(ts ...tensorops.Tensor) []tensorops.Tensor { return ts }

// each runs a test for each of its shapes.
func each[S any](t *testing.T, shapes []S, test func(p *tape, s S)) {
	for _, s := range shapes {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) { test(newTape(t), s) })
	}
}

type size struct{ m, n int }

var sizes = []size{{0, 3}, {1, 1}, {1, 7}, {5, 1}, {3, 5}}

func TestMatMulGradient(t *testing.T) {
	type product struct {
		m, n, k        int
		transA, transB bool
		bias           bool
	}
	var products []product
	for i := range 8 {
		products = append(products, product{3, 5, 4, i&1 > 0, i&2 > 0, i&4 > 0}, product{1, 1, 1, i&1 > 0, i&2 > 0, i&4 > 0})
	}
	each(t, products, func(p *tape, s product) {
		c := p.normal(s.m, s.n)
		a, b, bias := p.normal(s.m, s.k), p.normal(s.k, s.n), none
		if s.transA {
			a = p.normal(s.k, s.m)
		}
		if s.transB {
			b = p.normal(s.n, s.k)
		}
		inputs := tensors(a, b)
		if s.bias {
			bias = p.normal(s.n)
			inputs = append(inputs, bias)
		}
		checkGradient(p, function{
			inputs, tensors(c),
			func(l *tensorops.List) {
				l.MatMul(c, a, b, tensorops.MatMulOpts{TransA: s.transA, TransB: s.transB, Bias: bias})
			},
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				dc, da, db := dout[0], din[0], din[1]
				// dA = dC·op(B)ᵀ and dB = op(A)ᵀ·dC, or their transposes.
				if s.transA {
					l.MatMul(da, b, dc, tensorops.MatMulOpts{TransA: s.transB, TransB: true, Accumulate: true})
				} else {
					l.MatMul(da, dc, b, tensorops.MatMulOpts{TransB: !s.transB, Accumulate: true})
				}
				if s.transB {
					l.MatMul(db, dc, a, tensorops.MatMulOpts{TransA: true, TransB: s.transA, Accumulate: true})
				} else {
					l.MatMul(db, a, dc, tensorops.MatMulOpts{TransA: !s.transA, Accumulate: true})
				}
				if s.bias {
					l.ColSum(din[2], dc)
				}
			},
		})
	})
}

func TestEmbedGradient(t *testing.T) {
	each(t, [][]int32{{0}, {2, 0, 2, 1, 2}}, func(p *tape, tokens []int32) {
		ids, weight, out := p.ids(tokens...), p.normal(4, 3), p.normal(len(tokens), 3)
		checkGradient(p, function{
			tensors(weight), tensors(out),
			func(l *tensorops.List) { l.Embed(out, weight, ids) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) { l.EmbedGrad(din[0], dout[0], ids) },
		})
	})
}

func TestPositionsGradient(t *testing.T) {
	type positions struct {
		rows, period, first int
		starts              []int32
	}
	each(t, []positions{{4, 4, 0, nil}, {6, 3, 2, nil}, {3, 1, 4, nil}, {6, 6, 0, []int32{0, 0, 2, 2, 4, 4}}, {3, 3, 0, []int32{-9, 9, 1}}},
		func(p *tape, s positions) {
			x, weight, out := p.normal(s.rows, 3), p.normal(6, 3), p.normal(s.rows, 3)
			o := tensorops.PositionOpts{Period: s.period, First: s.first, Starts: p.starts(s.starts)}
			checkGradient(p, function{
				tensors(x, weight), tensors(out),
				func(l *tensorops.List) { l.AddPositions(out, x, weight, o) },
				func(l *tensorops.List, dout, din []tensorops.Tensor) {
					l.Copy(din[0], dout[0])
					l.PositionsGrad(din[1], dout[0], o)
				},
			})
		})
}

// A norm's input also goes around it: the sum of both ways has the gradient that
// the operation gives with its skip operand.
func TestLayerNormGradient(t *testing.T) {
	each(t, sizes, func(p *tape, s size) {
		x, gamma, beta, stats := p.normal(s.m, s.n), p.normal(s.n), p.normal(s.n), p.normal(s.m, 2)
		y, around := p.normal(s.m, s.n), p.normal(s.m, s.n)
		forward := func(l *tensorops.List) {
			l.LayerNorm(y, x, gamma, beta, stats, 0.1)
			l.Copy(around, x)
		}
		grad := func(skip bool) func(l *tensorops.List, dout, din []tensorops.Tensor) {
			return func(l *tensorops.List, dout, din []tensorops.Tensor) {
				around := none
				if skip {
					around = dout[1]
				}
				l.LayerNormGrad(din[0], dout[0], x, gamma, stats, around)
				l.LayerNormWeightGrad(din[1], din[2], dout[0], x, stats)
			}
		}
		checkGradient(p, function{tensors(x, gamma, beta), tensors(y), forward, grad(false)})
		checkGradient(p, function{tensors(x, gamma, beta), tensors(y, around), forward, grad(true)})
	})
}

func TestRMSNormGradient(t *testing.T) {
	each(t, sizes, func(p *tape, s size) {
		rms := tensorops.RMSNormOpts{Eps: 0.1, Offset: float64(s.m % 2)}
		x, gamma, stats := p.normal(s.m, s.n), p.normal(s.n), p.normal(s.m, 1)
		y, around := p.normal(s.m, s.n), p.normal(s.m, s.n)
		forward := func(l *tensorops.List) {
			l.RMSNorm(y, x, gamma, stats, rms)
			l.Copy(around, x)
		}
		grad := func(skip bool) func(l *tensorops.List, dout, din []tensorops.Tensor) {
			return func(l *tensorops.List, dout, din []tensorops.Tensor) {
				around := none
				if skip {
					around = dout[1]
				}
				l.RMSNormGrad(din[0], dout[0], x, gamma, stats, around, rms)
				l.RMSNormWeightGrad(din[1], dout[0], x, stats)
			}
		}
		checkGradient(p, function{tensors(x, gamma), tensors(y), forward, grad(false)})
		checkGradient(p, function{tensors(x, gamma), tensors(y, around), forward, grad(true)})
	})
}

func TestGELUGradient(t *testing.T) {
	each(t, sizes, func(p *tape, s size) {
		x, y := p.normal(s.m, s.n), p.normal(s.m, s.n)
		checkGradient(p, function{
			tensors(x), tensors(y),
			func(l *tensorops.List) { l.GELU(y, x) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) { l.GELUGrad(din[0], dout[0], x) },
		})
	})
}

func TestSwiGLUGradient(t *testing.T) {
	each(t, sizes, func(p *tape, s size) {
		gate, up, y := p.normal(s.m, s.n), p.normal(s.m, s.n), p.normal(s.m, s.n)
		checkGradient(p, function{
			tensors(gate, up), tensors(y),
			func(l *tensorops.List) { l.SwiGLU(y, gate, up) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.SwiGLUGrad(din[0], din[1], dout[0], gate, up)
			},
		})
	})
}

func TestGateGradient(t *testing.T) {
	each(t, []tensorops.GateOpts{{Act: tensorops.TanhGELU}, {Act: tensorops.ExactGELU}, {Act: tensorops.ReLU2}, {Act: tensorops.Sigmoid},
		{Act: tensorops.ClampedSwiGLU, Limit: 0.75, Alpha: 1.702}}, func(p *tape, g tensorops.GateOpts) {
		gate, up, y := p.normal(3, 5), p.normal(3, 5), p.normal(3, 5)
		checkGradient(p, function{
			tensors(gate, up), tensors(y),
			func(l *tensorops.List) { l.Gate(y, gate, up, g) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.GateGrad(din[0], din[1], dout[0], gate, up, g)
			},
		})
	})
}

func TestActGradient(t *testing.T) {
	each(t, []tensorops.Activation{tensorops.SiLU, tensorops.ExactGELU, tensorops.ReLU2, tensorops.Sigmoid},
		func(p *tape, act tensorops.Activation) {
			x, y := p.normal(3, 5), p.normal(3, 5)
			checkGradient(p, function{
				tensors(x), tensors(y),
				func(l *tensorops.List) { l.Act(y, x, act) },
				func(l *tensorops.List, dout, din []tensorops.Tensor) { l.ActGrad(din[0], dout[0], x, act) },
			})
		})
}

func TestSoftCapGradient(t *testing.T) {
	each(t, []float64{0.5, 30}, func(p *tape, limit float64) {
		x, y := p.normal(3, 5), p.normal(3, 5)
		checkGradient(p, function{
			tensors(x), tensors(y),
			func(l *tensorops.List) { l.SoftCap(y, x, limit) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) { l.SoftCapGrad(din[0], dout[0], x, limit) },
		})
	})
}

func TestAddScaledGradient(t *testing.T) {
	each(t, sizes, func(p *tape, s size) {
		x, skip, y := p.normal(s.m, s.n), p.normal(s.m, s.n), p.normal(s.m, s.n)
		checkGradient(p, function{
			tensors(x, skip), tensors(y),
			func(l *tensorops.List) { l.AddScaled(y, x, skip, 0.22) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.AddScaled(din[0], dout[0], none, 0.22)
				l.Copy(din[1], dout[0])
			},
		})
	})
}

func TestAddGradient(t *testing.T) {
	each(t, sizes, func(p *tape, s size) {
		a, b, out := p.normal(s.m, s.n), p.normal(s.m, s.n), p.normal(s.m, s.n)
		checkGradient(p, function{
			tensors(a, b), tensors(out),
			func(l *tensorops.List) { l.Add(out, a, b) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.Copy(din[0], dout[0])
				l.Copy(din[1], dout[0])
			},
		})
	})
}

// The mask of a dropout is fixed by its key, step and first index, so that the
// operation is linear and its gradient the operation itself.
func TestDropoutGradient(t *testing.T) {
	each(t, []tensorops.Mask{{P: 0}, {P: 0.3}, {P: 0.3, First: 5, Step: 2}, {P: 0.9, First: 1 << 33}}, func(p *tape, m tensorops.Mask) {
		m.Key = rng.NewKey(1, 2)
		x, skip, y := p.normal(4, 7), p.normal(4, 7), p.normal(4, 7)
		checkGradient(p, function{
			tensors(x, skip), tensors(y),
			func(l *tensorops.List) { l.Dropout(y, x, skip, m) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.Dropout(din[0], dout[0], none, m)
				l.Copy(din[1], dout[0])
			},
		})
	})
}

func TestRoPEGradient(t *testing.T) {
	each(t, []tensorops.RoPEOpts{
		{Heads: 1, Period: 6},
		{Heads: 2, Period: 3, First: 4},
		{Heads: 3, Period: 2, First: 1},
		{Heads: 2, Period: 6, Starts: newTape(t).starts([]int32{0, 0, 2, 2, 9, -4})},
	}, func(p *tape, o tensorops.RoPEOpts) {
		o.Rotation = tensorops.NewRotation([]float64{1, 0.1, 0}[:o.Heads], 1.25) // heads of 12, 6 and 4 channels
		if o.Heads == 3 {
			o.Rotation = tensorops.NewRotation([]float64{0.5}, 1)
		}
		x, y := p.normal(6, 12), p.normal(6, 12)
		inverse := o
		inverse.Inverse = true
		checkGradient(p, function{
			tensors(x), tensors(y),
			func(l *tensorops.List) {
				l.Copy(y, x)
				l.RoPE(y, o)
			},
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.Copy(din[0], dout[0])
				l.RoPE(din[0], inverse)
			},
		})
	})
}

func TestAttentionGradient(t *testing.T) {
	type attention struct {
		batch, tq, tk, heads, kvHeads, d int
		p                                float64
		first                            uint64
		starts                           []int32
	}
	each(t, []attention{
		{batch: 1, tq: 1, tk: 1, heads: 1, kvHeads: 1, d: 1},
		{batch: 2, tq: 3, tk: 3, heads: 2, kvHeads: 2, d: 3},
		{batch: 1, tq: 3, tk: 5, heads: 1, kvHeads: 1, d: 2},
		{batch: 2, tq: 2, tk: 4, heads: 6, kvHeads: 2, d: 2},
		{batch: 2, tq: 3, tk: 3, heads: 4, kvHeads: 1, d: 2},
		{batch: 2, tq: 3, tk: 4, heads: 4, kvHeads: 2, d: 2, p: 0.3},
		{batch: 1, tq: 4, tk: 4, heads: 2, kvHeads: 1, d: 3, p: 0.5, first: 7},
		{batch: 2, tq: 4, tk: 4, heads: 2, kvHeads: 1, d: 3, starts: []int32{0, 0, 2, 2, 0, 1, 1, 3}},
		{batch: 1, tq: 4, tk: 6, heads: 2, kvHeads: 1, d: 3, p: 0.3, starts: []int32{-1, 3, 6, 9}},
	}, func(p *tape, s attention) {
		o := tensorops.AttentionOpts{
			Batch: s.batch, Heads: s.heads, KVHeads: s.kvHeads, Starts: p.starts(s.starts),
			Mask: tensorops.Mask{Key: rng.NewKey(3, 4), Step: 5, First: s.first, P: s.p},
		}
		q, k, v := p.normal(s.batch*s.tq, s.heads*s.d), p.normal(s.batch*s.tk, s.kvHeads*s.d), p.normal(s.batch*s.tk, s.kvHeads*s.d)
		out, lse := p.normal(s.batch*s.tq, s.heads*s.d), p.normal(s.batch, s.heads, s.tq)
		checkGradient(p, function{
			tensors(q, k, v), tensors(out),
			func(l *tensorops.List) { l.Attention(out, q, k, v, lse, o) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.AttentionGrad(din[0], din[1], din[2], dout[0], q, k, v, out, lse, o)
			},
		})
	})
}

// The operation takes a scale in place of the loss's gradient.
func TestCrossEntropyGradient(t *testing.T) {
	type rows struct {
		vocabulary int
		targets    []int32
	}
	each(t, []rows{
		{1, []int32{0}},
		{5, []int32{3}},
		{4, []int32{0, -1, 3, 3, -1, 1}},
		{3, []int32{-1, -1}},
	}, func(p *tape, s rows) {
		n := len(s.targets)
		logits, targets := p.normal(n, s.vocabulary), p.ids(s.targets...)
		stats, lse := p.zeros(tensorops.Float64, tensorops.LossStats), p.zeros(tensorops.Float64, n)
		checkGradient(p, function{
			tensors(logits), tensors(stats),
			func(l *tensorops.List) { l.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{}) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{Grad: din[0], Scale: ref.Values(dout[0])[0]})
			},
		})
	})
}
