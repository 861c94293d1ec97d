package ref

import "github.com/troupe-ml/troupe/tensorops"

// matMul: C = op(A)·op(B), plus C before or a bias.
func matMul(op *tensorops.Op) {
	c, a, b := matrixOf(op.T[0]), matrixOf(op.T[1]), matrixOf(op.T[2])
	if op.Has(tensorops.FlagTransA) {
		a = a.transposed()
	}
	if op.Has(tensorops.FlagTransB) {
		b = b.transposed()
	}
	for i := range c.rows {
		for j := range c.cols {
			var sum float64
			for k := range a.cols {
				sum += *a.at(i, k) * *b.at(k, j)
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
