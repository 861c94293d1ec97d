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
	// B's elements are rounded once, and the sums of a row go on side by side: each adds its products
	// in the order of k, as if it were alone, but the processor need not wait for one after the other.
	rounded := make([]float64, b.rows*b.cols)
	for k := range b.rows {
		for j := range b.cols {
			rounded[k*b.cols+j] = round(*b.at(k, j))
		}
	}
	sums := make([]float64, c.cols)
	for i := range c.rows {
		clear(sums)
		for k := range a.cols {
			x := round(*a.at(i, k))
			for j, y := range rounded[k*b.cols : (k+1)*b.cols] {
				sums[j] += x * y
			}
		}
		for j, sum := range sums {
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
