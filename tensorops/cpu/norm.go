package cpu

func layerNorm(x *exec, lo, hi int) {
	y, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[4])
	var beta []float32
	if x.op.T[3].Valid() {
		beta = f32(x.op.T[3])
	}
	c, eps := x.op.T[1].Cols(), x.op.F[0]
	for n := lo; n < hi; n++ {
		stats[2*n], stats[2*n+1] = x.dev.kernels.vec.LayerNorm(y[n*c:][:c], in[n*c:][:c], gamma, beta, eps)
	}
}

func layerNormGrad(x *exec, lo, hi int) {
	dx, dy, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3]), f32(x.op.T[4])
	c := x.op.T[2].Cols()
	for n := lo; n < hi; n++ {
		x.dev.kernels.vec.LayerNormGrad(dx[n*c:][:c], dy[n*c:], in[n*c:], gamma, x.skipRow(n, c), stats[2*n], stats[2*n+1])
	}
}

// skipRow is row n of what goes around a norm; nil if nothing does.
func (x *exec) skipRow(n, c int) []float32 {
	if !x.op.T[5].Valid() {
		return nil
	}
	return f32(x.op.T[5])[n*c:][:c]
}

func (x *exec) layerNormWeightGrad() error {
	in := x.op.T[3]
	return x.sumRows(in.Rows(), in.Cols(), 2*in.Cols(), layerNormWeightBlocks, layerNormWeightTotals)
}

func layerNormWeightBlocks(x *exec, lo, hi int) {
	dy, in, stats := f32(x.op.T[2]), f32(x.op.T[3]), f32(x.op.T[4])
	c, rows := x.op.T[3].Cols(), x.op.T[3].Rows()
	x.sumBlocks(lo, hi, rows, 2*c, func(sums []float32, r0, r1 int) {
		x.dev.kernels.vec.LayerNormWeightGrad(sums[:c], sums[c:], dy[r0*c:r1*c], in[r0*c:r1*c], stats[2*r0:2*r1])
	})
}

func layerNormWeightTotals(x *exec, lo, hi int) {
	c := x.op.T[3].Cols()
	x.addSums(f32(x.op.T[0]), 0, 2*c, lo, hi)
	if x.op.T[1].Valid() {
		x.addSums(f32(x.op.T[1]), c, 2*c, lo, hi)
	}
}

func rmsNorm(x *exec, lo, hi int) {
	y, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3])
	c, eps := x.op.T[1].Cols(), x.op.F[0]
	for n := lo; n < hi; n++ {
		stats[n] = x.dev.kernels.vec.RMSNorm(y[n*c:][:c], in[n*c:], gamma, eps)
	}
}

func rmsNormGrad(x *exec, lo, hi int) {
	dx, dy, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3]), f32(x.op.T[4])
	c := x.op.T[2].Cols()
	for n := lo; n < hi; n++ {
		x.dev.kernels.vec.RMSNormGrad(dx[n*c:][:c], dy[n*c:], in[n*c:], gamma, x.skipRow(n, c), stats[n])
	}
}

func (x *exec) rmsNormWeightGrad() error {
	in := x.op.T[2]
	return x.sumRows(in.Rows(), in.Cols(), in.Cols(), rmsNormWeightBlocks, rmsNormWeightTotals)
}

func rmsNormWeightBlocks(x *exec, lo, hi int) {
	dy, in, stats := f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3])
	c, rows := x.op.T[2].Cols(), x.op.T[2].Rows()
	x.sumBlocks(lo, hi, rows, c, func(sums []float32, r0, r1 int) {
		x.dev.kernels.vec.RMSNormWeightGrad(sums, dy[r0*c:r1*c], in[r0*c:r1*c], stats[r0:r1])
	})
}

func rmsNormWeightTotals(x *exec, lo, hi int) {
	x.addSums(f32(x.op.T[0]), 0, x.op.T[2].Cols(), lo, hi)
}
