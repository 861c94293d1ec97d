package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// matMul: C = op(A)·op(B), plus C before or a bias.
func matMul(op *tensorops.Op) {
	c, a, b := matrixOf(op.T[0]), matrixOf(op.T[1]), matrixOf(op.T[2])
	if op.Has(tensorops.FlagTransA) {
		a = a.transposed()
	}
	if op.Has(tensorops.FlagTransB) {
		b = b.transposed()
	}
	round := func(v float64) float64 { return v }
	if op.Has(tensorops.FlagBF16) {
		round = bf16
	}
	for i := range c.rows {
		for j := range c.cols {
			var sum float64
			for k := range a.cols {
				sum += round(*a.at(i, k)) * round(*b.at(k, j))
			}
			if op.Has(tensorops.FlagAccumulate) {
				sum += *c.at(i, j)
			}
			if bias := op.T[3]; bias.Valid() {
				sum += Values(bias)[j]
			}
			*c.at(i, j) = sum
		}
	}
}

// bf16 rounds a number to bfloat16, the upper half of a float32.
func bf16(v float64) float64 {
	b := math.Float32bits(float32(v))
	return float64(math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff))
}

// colSum: sum[j] += Σ rows of x[·, j].
func colSum(op *tensorops.Op) {
	sum, x := Values(op.T[0]), matrixOf(op.T[1])
	for i := range x.rows {
		for j := range x.cols {
			sum[j] += *x.at(i, j)
		}
	}
}

// add: out = a + b.
func add(op *tensorops.Op) {
	out, a, b := Values(op.T[0]), Values(op.T[1]), Values(op.T[2])
	for i := range out {
		out[i] = a[i] + b[i]
	}
}
