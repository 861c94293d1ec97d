package cpu

func (x *exec) colSum() error {
	in := x.op.ColSum().X
	return x.sumRows(in.Rows(), in.Cols(), in.Cols(), colSumBlocks, colSumTotals)
}

func colSumBlocks(x *exec, lo, hi int) {
	a := x.op.ColSum()
	in, c := f32(a.X), a.X.Cols()
	x.sumBlocks(lo, hi, a.X.Rows(), c, func(sums []float32, r0, r1 int) {
		x.dev.kernels.vec.ColSum(sums, in[r0*c:r1*c])
	})
}

func colSumTotals(x *exec, lo, hi int) {
	a := x.op.ColSum()
	x.addSums(f32(a.Sum), 0, a.X.Cols(), lo, hi)
}

func add(x *exec, lo, hi int) {
	a := x.op.Add()
	x.dev.kernels.vec.Add(f32(a.Out)[lo:hi], f32(a.A)[lo:hi], f32(a.B)[lo:hi])
}
