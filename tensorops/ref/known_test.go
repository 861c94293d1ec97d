package ref_test

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// Central differences tie gradients to forward operations. These tests tie the
// forward operations to values that were worked out by hand.

// of makes a tensor of given values.
func (p *tape) of(values []float64, dims ...int) tensorops.Tensor {
	p.t.Helper()
	x := p.zeros(tensorops.Float32, dims...)
	ref.Set(x, values)
	return x
}

func (p *tape) want(x tensorops.Tensor, want ...float64) {
	p.t.Helper()
	got := ref.Values(x)
	for i, w := range want {
		if len(got) != len(want) || !(math.Abs(got[i]-w) <= 1e-9) {
			p.t.Errorf("got %.12g, want %.12g", got, want)
			return
		}
	}
}

func TestMatMulValues(t *testing.T) {
	p := newTape(t)
	a, b := p.of([]float64{1, 2, 3, 4, 5, 6}, 2, 3), p.of([]float64{1, 0, 2, 1, 0, 3}, 3, 2)
	c, bias := p.zeros(tensorops.Float32, 2, 2), p.of([]float64{100, 200}, 2)
	p.run(func(l *tensorops.List) { l.MatMul(c, a, b, tensorops.MatMulOpts{}) })
	p.want(c, 5, 11, 14, 23)
	p.run(func(l *tensorops.List) { l.MatMul(c, a, b, tensorops.MatMulOpts{Accumulate: true}) })
	p.want(c, 10, 22, 28, 46)
	p.run(func(l *tensorops.List) { l.MatMul(c, a, b, tensorops.MatMulOpts{Bias: bias}) })
	p.want(c, 105, 211, 114, 223)
	p.run(func(l *tensorops.List) {
		l.MatMul(c, b, a, tensorops.MatMulOpts{TransA: true, TransB: true})
	})
	p.want(c, 5, 14, 11, 23)
}

func TestNormValues(t *testing.T) {
	p := newTape(t)
	x, ones := p.of([]float64{1, 2, 3, 6}, 1, 4), p.of([]float64{1, 1, 1, 1}, 4)
	y, stats, rms := p.zeros(tensorops.Float32, 1, 4), p.zeros(tensorops.Float32, 1, 2), p.zeros(tensorops.Float32, 1)
	p.run(func(l *tensorops.List) { l.LayerNorm(y, x, ones, ones, stats, 0.5) })
	p.want(stats, 3, 0.5) // the variance is 14/4
	p.want(y, 0, 0.5, 1, 2.5)
	p.run(func(l *tensorops.List) { l.RMSNorm(y, x, ones, rms, tensorops.RMSNormOpts{Eps: 3.5}) })
	p.want(rms, 0.25) // the mean of squares is 50/4
	p.want(y, 0.25, 0.5, 0.75, 1.5)
}

func TestActivationValues(t *testing.T) {
	p := newTape(t)
	x, y := p.of([]float64{0, 1, -1, 3, -100, 100}, 6), p.zeros(tensorops.Float32, 6)
	p.run(func(l *tensorops.List) { l.GELU(y, x) })
	p.want(y, 0, 0.841191990608, -0.158808009392, 2.996362607918, 0, 100)
	gate, up := p.of([]float64{0, math.Log(3), -math.Log(3)}, 3), p.of([]float64{5, 4, 8}, 3)
	z := p.zeros(tensorops.Float32, 3)
	p.run(func(l *tensorops.List) { l.SwiGLU(z, gate, up) })
	p.want(z, 0, 3*math.Log(3), -2*math.Log(3)) // σ is 3/4 and 1/4
}

func TestRoPEValues(t *testing.T) {
	p := newTape(t)
	turn := tensorops.NewRotation([]float64{1, 0.01}, 1)
	// Two heads of four: the pairs are (0, 2), which turns by the position, and
	// (1, 3), which turns by a hundredth of it.
	x := p.of([]float64{
		1, 1, 0, 0, 0, 0, 1, 1,
		1, 1, 0, 0, 0, 0, 1, 1,
	}, 2, 8)
	p.run(func(l *tensorops.List) { l.RoPE(x, tensorops.RoPEOpts{Heads: 2, Period: 2, First: 0, Rotation: turn}) })
	s1, c1 := math.Sincos(1)
	s2, c2 := math.Sincos(0.01)
	p.want(x,
		1, 1, 0, 0, 0, 0, 1, 1,
		c1, c2, s1, s2, -s1, -s2, c1, c2,
	)
	// The same turn, of rows that all start at position 1, and back.
	first := tensorops.RoPEOpts{Heads: 2, Period: 1, First: 1, Rotation: turn, Inverse: true}
	p.run(func(l *tensorops.List) { l.RoPE(x.RowRange(1, 2), first) })
	p.want(x, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1)
}

func TestAttentionValues(t *testing.T) {
	p := newTape(t)
	// Heads of four, so that scores are halved. The second query's scores are
	// 0 and log 3: a quarter of the first value, three of the second.
	q := p.of([]float64{9, 9, 9, 9, 1, 0, 0, 0}, 2, 4)
	k := p.of([]float64{0, 7, 7, 7, 2 * math.Log(3), 7, 7, 7}, 2, 4)
	v := p.of([]float64{4, 0, 8, 0, 0, 4, 8, 16}, 2, 4)
	o, lse := p.zeros(tensorops.Float32, 2, 4), p.zeros(tensorops.Float32, 2)
	p.run(func(l *tensorops.List) {
		l.Attention(o, q, k, v, lse, tensorops.AttentionOpts{Batch: 1, Heads: 1, KVHeads: 1})
	})
	p.want(o, 4, 0, 8, 0, 1, 3, 8, 12) // the first query sees the first key alone
	p.want(lse, 9*21/2.0, math.Log(4))
}

func TestCrossEntropyValues(t *testing.T) {
	p := newTape(t)
	logits := p.of([]float64{0, math.Log(3), 1000, 1000, 5, 5}, 3, 2)
	stats, lse := p.zeros(tensorops.Float64, 2), p.zeros(tensorops.Float64, 3)
	targets := p.ids(1, 0, tensorops.IgnoreTarget)
	p.run(func(l *tensorops.List) { l.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{}) })
	p.want(lse, math.Log(4), 1000+math.Log(2), 5+math.Log(2))
	p.want(stats, math.Log(4)-math.Log(3)+math.Log(2), 2)
	p.run(func(l *tensorops.List) {
		l.CrossEntropy(stats, lse, logits, targets, tensorops.CrossEntropyOpts{Grad: logits, Scale: 8})
	})
	p.want(logits, 2, -2, -4, 4, 0, 0)
}

func TestOptimizerValues(t *testing.T) {
	p := newTape(t)
	w, m, v, g := p.of([]float64{3}, 1), p.of([]float64{0}, 1), p.of([]float64{0}, 1), p.of([]float64{-8}, 1)
	adamW := tensorops.AdamWOpts{LR: 0.1, Beta1: 0.5, Beta2: 0.75, Eps: 2, WeightDecay: 0.2, GradScale: 0.5, Step: 1}
	p.run(func(l *tensorops.List) { l.AdamW(w, m, v, g, adamW) })
	p.want(m, -2)
	p.want(v, 4)
	p.want(w, 3-0.1*(0.6-4.0/6)) // m̂ = −4 and √v̂ = 4 are the first gradient's
	w, m = p.of([]float64{1}, 1), p.of([]float64{6}, 1)
	sgd := tensorops.SGDOpts{LR: 0.1, Momentum: 0.5, WeightDecay: 2, GradScale: 0.5}
	p.run(func(l *tensorops.List) { l.SGD(w, m, g, sgd) })
	p.want(m, 1) // 3 + (−4 + 2)
	p.want(w, 0.9)
	p.run(func(l *tensorops.List) { l.SGD(w, none, g, sgd) })
	p.want(w, 0.9-0.1*(-4+1.8))
}

// TestDropoutMask compares with the words of the generator, taken one by one.
func TestDropoutMask(t *testing.T) {
	const n, step, p = 1000, 3, 0.3
	key := rng.NewKey(1, 2)
	tp := newTape(t)
	for _, first := range []uint64{0, 1, 6, 1<<32 - 2} {
		ones, y := tp.zeros(tensorops.Float32, n), tp.zeros(tensorops.Float32, n)
		tp.run(func(l *tensorops.List) {
			l.Fill(ones, 1)
			l.Dropout(y, ones, none, tensorops.Mask{Key: key, Step: step, First: first, P: p})
		})
		kept := 0
		for i, got := range ref.Values(y) {
			a, b, c, d := rng.Block(key, step, (first+uint64(i))/4)
			want := 0.0
			if word := [4]uint32{a, b, c, d}[(first+uint64(i))%4]; word >= 1288490188 { // ⌊0.3·2³²⌋
				want = 1 / 0.7
				kept++
			}
			if got != want {
				t.Fatalf("element %d from %d is %g, want %g", i, first, got, want)
			}
		}
		if kept < 650 || kept > 750 {
			t.Errorf("%d of %d elements were kept with P = %g", kept, n, p)
		}
	}
}

// TestAttentionSees: with keys of zero, every key that a query sees has the same
// probability, so that an output is the mean of values, some of them dropped.
// The sizes differ, so that every index counts.
func TestAttentionSees(t *testing.T) {
	const batch, heads, kvHeads, tq, tk, p = 2, 6, 3, 2, 5, 0.5
	mask := tensorops.Mask{Key: rng.NewKey(1, 2), Step: 3, First: 5, P: p}
	tp := newTape(t)
	q, k, v := tp.normal(batch*tq, heads), tp.zeros(tensorops.Float32, batch*tk, kvHeads), tp.normal(batch*tk, kvHeads)
	o, lse := tp.zeros(tensorops.Float32, batch*tq, heads), tp.zeros(tensorops.Float32, batch, heads, tq)
	kept := tp.zeros(tensorops.Float32, batch, heads, tq, tk)
	tp.run(func(l *tensorops.List) {
		l.Attention(o, q, k, v, lse, tensorops.AttentionOpts{Batch: batch, Heads: heads, KVHeads: kvHeads, Mask: mask})
		l.Fill(kept, 1)
		l.Dropout(kept, kept, none, mask)
	})
	var want []float64
	for b := range batch {
		for i := range tq {
			for h := range heads {
				sees := i + 4 // 4 or all 5 of the keys
				var sum float64
				for j := range sees {
					sum += ref.Values(kept)[((b*heads+h)*tq+i)*tk+j] * ref.Values(v)[(b*tk+j)*kvHeads+h/2]
				}
				want = append(want, sum/float64(sees))
			}
		}
	}
	tp.want(o, want...)
}

func TestMoveValues(t *testing.T) {
	p := newTape(t)
	ids, got := p.ids(1, 2, 3), make([]int32, 3)
	p.run(func(l *tensorops.List) {
		l.Fill(ids.View(3, 1).RowRange(1, 2), -7)
		l.Fetch(tensorops.HostBytes(got), ids)
	})
	if !slices.Equal(got, []int32{1, -7, 3}) {
		t.Errorf("got %d", got)
	}
	out := p.zeros(tensorops.Float64, 1)
	p.run(func(l *tensorops.List) { l.SquaredNorm(out, p.of([]float64{1, -2, 3}, 3)) })
	p.want(out, 14)
}
