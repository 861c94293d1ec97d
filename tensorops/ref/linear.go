package ref

import "github.com/troupe-ml/troupe/tensorops"

// matMul: C = op(A)·op(B), plus C before or a bias.
func matMul(op *tensorops.Op) {
	args := op.MatMul()
	c, a, b := matrixOf(args.C), matrixOf(args.A), matrixOf(args.B)
	if args.TransA {
		a = a.transposed()
	}
	if args.TransB {
		b = b.transposed()
	}
	round := func(v float64) float64 { return v }
	if args.BF16 {
		round = bf16
	}
	for i := range c.rows {
		for j := range c.cols {
			var sum float64
			for k := range a.cols {
				sum += round(*a.at(i, k)) * round(*b.at(k, j))
			}
			if args.Accumulate {
				sum += *c.at(i, j)
			}
			if args.Bias.Valid() {
				sum += Values(args.Bias)[j]
			}
			*c.at(i, j) = sum
		}
	}
}

// bf16 rounds a number to bfloat16, by way of float32.
func bf16(v float64) float64 {
	return float64(tensorops.FromBFloat16(tensorops.ToBFloat16(float32(v))))
}

// colSum: sum[j] += Σ rows of x[·, j].
func colSum(op *tensorops.Op) {
	a := op.ColSum()
	sum, x := Values(a.Sum), matrixOf(a.X)
	for i := range x.rows {
		for j := range x.cols {
			sum[j] += *x.at(i, j)
		}
	}
}

// add: out = a + b.
func add(op *tensorops.Op) {
	args := op.Add()
	out, a, b := Values(args.Out), Values(args.A), Values(args.B)
	for i := range out {
		out[i] = a[i] + b[i]
	}
}
