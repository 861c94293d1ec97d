package cpu

func (x *exec) colSum() error {
	in := x.op.ColSum().X
	return x.sumRows(in.Rows(), in.Cols(), in.Cols(), colSumBlocks, colSumTotals)
}

func colSumBlocks(x *exec, lo, hi int) {
	a := x.op.ColSum()
	in, c := x.values(0, a.X), a.X.Cols()
	x.sumBlocks(lo, hi, a.X.Rows(), c, func(sums []float32, r0, r1 int) {
		fewRows(r0, r1, func(r0, r1 int) { x.dev.kernels.vec.ColSum(sums, x.get(in, r0*c, r1*c)) }, in)
	})
}

func colSumTotals(x *exec, lo, hi int) {
	a := x.op.ColSum()
	x.addSums(f32(a.Sum), 0, a.X.Cols(), lo, hi)
}

func add(x *exec, lo, hi int) {
	a := x.op.Add()
	out, l, r := x.values(0, a.Out), x.values(1, a.A), x.values(2, a.B)
	parts(lo, hi, func(lo, hi int) {
		sum := x.room(out, lo, hi)
		x.dev.kernels.vec.Add(sum, x.get(l, lo, hi), x.get(r, lo, hi))
		x.put(out, lo, sum)
	}, out, l, r)
}
