package ref_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// TestAttentionOfBlocks: attention of each block of a sequence over itself and, in whatever order a
// ring brings them, those before it is the attention of the sequence; and so are the gradients.
func TestAttentionOfBlocks(t *testing.T) {
	for _, blocks := range []int{2, 4, 8} {
		const positions, heads, kvHeads, d = 24, 4, 2, 3
		opts := tensorops.AttentionOpts{Batch: 1, Heads: heads, KVHeads: kvHeads}
		p, r := newTape(t), rand.New(rand.NewPCG(1, uint64(blocks)))
		draw := func(width int) []float64 {
			v := make([]float64, positions*width)
			for i := range v {
				v[i] = r.NormFloat64()
			}
			return v
		}
		q, k, v, do := draw(heads*d), draw(kvHeads*d), draw(kvHeads*d), draw(heads*d)
		matrix := func(values []float64, width int) tensorops.Tensor { return p.of(values, len(values)/width, width) }
		zeros := func(rows, width int) tensorops.Tensor { return p.zeros(tensorops.Float32, rows, width) }

		wo, wlse := zeros(positions, heads*d), p.zeros(tensorops.Float32, 1, heads, positions)
		wdq, wdk, wdv := zeros(positions, heads*d), zeros(positions, kvHeads*d), zeros(positions, kvHeads*d)
		p.run(func(l *tensorops.List) {
			l.Attention(wo, matrix(q, heads*d), matrix(k, kvHeads*d), matrix(v, kvHeads*d), wlse, opts)
			l.AttentionGrad(wdq, wdk, wdv, matrix(do, heads*d), matrix(q, heads*d), matrix(k, kvHeads*d), matrix(v, kvHeads*d), wo, wlse, opts)
		})

		n := positions / blocks
		part := func(values []float64, i, width int) tensorops.Tensor {
			return matrix(values[i*n*width:][:n*width], width)
		}
		var o, dq []float64
		dk, dv := make([]float64, len(k)), make([]float64, len(v))
		add := func(to []float64, x tensorops.Tensor) {
			for i, g := range ref.Values(x) {
				to[i] += g
			}
		}
		for i := range blocks {
			bo, lse, bdq := zeros(n, heads*d), p.zeros(tensorops.Float32, 1, heads, n), make([]float64, n*heads*d)
			over := append([]int{i}, r.Perm(i)...) // its own first
			of := func(j int) tensorops.AttentionOpts {
				a := opts
				a.Whole = j != i
				return a
			}
			for _, j := range over {
				a := of(j)
				a.Onto = j != i
				p.run(func(l *tensorops.List) {
					l.Attention(bo, part(q, i, heads*d), part(k, j, kvHeads*d), part(v, j, kvHeads*d), lse, a)
				})
			}
			for _, j := range over {
				gq, gk, gv := zeros(n, heads*d), zeros(n, kvHeads*d), zeros(n, kvHeads*d)
				p.run(func(l *tensorops.List) {
					l.AttentionGrad(gq, gk, gv, part(do, i, heads*d), part(q, i, heads*d), part(k, j, kvHeads*d), part(v, j, kvHeads*d), bo, lse, of(j))
				})
				add(bdq, gq)
				add(dk[j*n*kvHeads*d:], gk)
				add(dv[j*n*kvHeads*d:], gv)
			}
			o, dq = append(o, ref.Values(bo)...), append(dq, bdq...)
		}
		for name, c := range map[string][2][]float64{
			"o": {o, ref.Values(wo)}, "dq": {dq, ref.Values(wdq)}, "dk": {dk, ref.Values(wdk)}, "dv": {dv, ref.Values(wdv)},
		} {
			if e := distance(c[0], c[1]); !(e <= 1e-12) {
				t.Errorf("%d blocks: %s is off by %.3g of its norm", blocks, name, e)
			}
		}
	}
}

// distance of two vectors, as a share of the second's norm.
func distance(got, want []float64) float64 {
	if len(got) != len(want) || !slices.ContainsFunc(want, func(x float64) bool { return x != 0 }) {
		return math.Inf(1)
	}
	var off, norm float64
	for i, w := range want {
		off += (got[i] - w) * (got[i] - w)
		norm += w * w
	}
	return math.Sqrt(off / norm)
}
