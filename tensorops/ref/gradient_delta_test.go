package ref_test

import (
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

func TestCausalConvGradient(t *testing.T) {
	for _, s := range []struct {
		batch, positions, channels, taps int
		starts                           []int32
	}{{1, 1, 1, 1, nil}, {2, 5, 3, 4, nil}, {1, 2, 2, 4, nil}, {2, 5, 3, 4, []int32{0, 0, 2, 2, 2, -1, 0, 1, 9, 3}}} {
		p := newTape(t)
		o := tensorops.ConvOpts{Batch: s.batch, Starts: p.starts(s.starts)}
		x, weight, y := p.normal(s.batch*s.positions, s.channels), p.normal(s.channels, s.taps), p.normal(s.batch*s.positions, s.channels)
		checkGradient(p, function{
			tensors(x, weight), tensors(y),
			func(l *tensorops.List) { l.CausalConv(y, x, weight, none, o) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.CausalConvGrad(din[0], dout[0], x, weight, o)
				l.CausalConvWeightGrad(din[1], dout[0], x, weight, o)
			},
		})
	}
}

func TestDeltaGatesGradient(t *testing.T) {
	each(t, sizes, func(p *tape, s size) {
		o, resets := tensorops.DeltaGatesOpts{}, 0
		if s.m > 1 { // the first rows are documents of one token
			starts := make([]int32, s.m)
			for resets = range s.m / 2 {
				starts[resets] = int32(resets)
			}
			resets++
			o = tensorops.DeltaGatesOpts{Batch: 1, Starts: p.ids(starts...)}
		}
		zeros := p.zeros(tensorops.Float32, s.m, s.n)
		a, b, aLog, dtBias, gates := p.normal(s.m, s.n), p.normal(s.m, s.n), p.normal(s.n), p.normal(s.n), p.normal(s.m, 2*s.n)
		checkGradient(p, function{
			tensors(a, b, aLog, dtBias), tensors(gates),
			func(l *tensorops.List) {
				l.DeltaGates(gates, a, b, aLog, dtBias, o)
				if resets > 0 { // their g is so large that the differences of a sum would say nothing
					l.Copy(gates.RowRange(0, resets).Columns(0, s.n), zeros.RowRange(0, resets))
				}
			},
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.DeltaGates(gates, a, b, aLog, dtBias, o)
				l.DeltaGatesGrad(din[0], din[1], dout[0], gates, a, aLog, dtBias)
				l.DeltaGatesWeightGrad(din[2], din[3], dout[0], gates, a, aLog, dtBias)
			},
		})
	})
}

func TestGatedDeltaGradient(t *testing.T) {
	for _, s := range []struct{ batch, positions, keyHeads, valueHeads, dk, dv int }{{1, 1, 1, 1, 1, 1}, {2, 5, 1, 2, 3, 2},
		{1, 4, 2, 2, 2, 3}} {
		p := newTape(t)
		rows, keys, values := s.batch*s.positions, s.keyHeads*s.dk, s.valueHeads*s.dv
		q, k, v, o, gates := p.normal(rows, keys), p.normal(rows, keys), p.normal(rows, values), p.normal(rows, values),
			p.normal(rows, 2*s.valueHeads)
		opts := tensorops.DeltaOpts{Batch: s.batch, KeyHeads: s.keyHeads, ValueHeads: s.valueHeads, Eps: 0.1}
		checkGradient(p, function{
			tensors(q, k, v, gates), tensors(o),
			func(l *tensorops.List) { l.GatedDelta(o, q, k, v, gates, none, opts) },
			func(l *tensorops.List, dout, din []tensorops.Tensor) {
				l.GatedDeltaGrad(din[0], din[1], din[2], din[3], dout[0], q, k, v, gates, opts)
			},
		})
	}
}

// TestGatedDeltaContinues: a sequence in two parts, with the state between them, has the output of the
// whole, and so has its convolution.
func TestGatedDeltaContinues(t *testing.T) {
	p := newTape(t)
	const n, first, heads, dk, dv = 7, 3, 2, 3, 4
	q, k, v, gates := p.normal(n, heads*dk), p.normal(n, heads*dk), p.normal(n, heads*dv), p.normal(n, 2*heads)
	whole, parts, state := p.zeros(tensorops.Float32, n, heads*dv), p.zeros(tensorops.Float32, n, heads*dv),
		p.zeros(tensorops.Float32, heads, dk, dv)
	x, weight, rows := p.normal(n, 5), p.normal(5, 4), p.zeros(tensorops.Float32, 1, 3, 5)
	y, yParts := p.zeros(tensorops.Float32, n, 5), p.zeros(tensorops.Float32, n, 5)
	o, c := tensorops.DeltaOpts{Batch: 1, KeyHeads: heads, ValueHeads: heads, Eps: 1e-6}, tensorops.ConvOpts{Batch: 1}
	p.run(func(l *tensorops.List) {
		l.GatedDelta(whole, q, k, v, gates, none, o)
		l.CausalConv(y, x, weight, none, c)
		for _, r := range [][2]int{{0, first}, {first, first + 1}, {first + 1, n}} {
			part := func(t tensorops.Tensor) tensorops.Tensor { return t.RowRange(r[0], r[1]) }
			l.GatedDelta(part(parts), part(q), part(k), part(v), part(gates), state, o)
			l.CausalConv(part(yParts), part(x), weight, rows, c)
		}
	})
	p.want(parts, ref.Values(whole)...)
	p.want(yParts, ref.Values(y)...)
}
