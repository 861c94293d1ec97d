package cpu

func (x *exec) colSum() error {
	in := x.op.T[1]
	return x.sumRows(in.Rows(), in.Cols(), in.Cols(), colSumBlocks, colSumTotals)
}

func colSumBlocks(x *exec, lo, hi int) {
	in, c := f32(x.op.T[1]), x.op.T[1].Cols()
	x.sumBlocks(lo, hi, x.op.T[1].Rows(), c, func(sums []float32, r0, r1 int) {
		x.dev.kernels.vec.ColSum(sums, in[r0*c:r1*c])
	})
}

func colSumTotals(x *exec, lo, hi int) {
	x.addSums(f32(x.op.T[0]), 0, x.op.T[1].Cols(), lo, hi)
}

func add(x *exec, lo, hi int) {
	x.dev.kernels.vec.Add(f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi], f32(x.op.T[2])[lo:hi])
}
