package cpu

func layerNorm(x *exec, lo, hi int) {
	a := x.op.LayerNorm()
	y, in, gamma, beta, stats := f32(a.Y), f32(a.X), f32(a.Gamma), optional(a.Beta), f32(a.Stats)
	c := a.X.Cols()
	for n := lo; n < hi; n++ {
		stats[2*n], stats[2*n+1] = x.dev.kernels.vec.LayerNorm(y[n*c:][:c], in[n*c:][:c], gamma, beta, a.Eps)
	}
}

func layerNormGrad(x *exec, lo, hi int) {
	a := x.op.LayerNormGrad()
	dx, dy, in, gamma, stats, skip := f32(a.DX), f32(a.DY), f32(a.X), f32(a.Gamma), f32(a.Stats), optional(a.Skip)
	c := a.X.Cols()
	for n := lo; n < hi; n++ {
		x.dev.kernels.vec.LayerNormGrad(dx[n*c:][:c], dy[n*c:], in[n*c:], gamma, skipRow(skip, n, c), stats[2*n], stats[2*n+1])
	}
}

// skipRow is row n of what goes around a norm; nil if nothing does.
func skipRow(skip []float32, n, c int) []float32 {
	if skip == nil {
		return nil
	}
	return skip[n*c:][:c]
}

func (x *exec) layerNormWeightGrad() error {
	in := x.op.LayerNormWeightGrad().X
	return x.sumRows(in.Rows(), in.Cols(), 2*in.Cols(), layerNormWeightBlocks, layerNormWeightTotals)
}

func layerNormWeightBlocks(x *exec, lo, hi int) {
	a := x.op.LayerNormWeightGrad()
	dy, in, stats := f32(a.DY), f32(a.X), f32(a.Stats)
	c, rows := a.X.Cols(), a.X.Rows()
	x.sumBlocks(lo, hi, rows, 2*c, func(sums []float32, r0, r1 int) {
		x.dev.kernels.vec.LayerNormWeightGrad(sums[:c], sums[c:], dy[r0*c:r1*c], in[r0*c:r1*c], stats[2*r0:2*r1])
	})
}

func layerNormWeightTotals(x *exec, lo, hi int) {
	a := x.op.LayerNormWeightGrad()
	c := a.X.Cols()
	x.addSums(f32(a.DGamma), 0, 2*c, lo, hi)
	if a.DBeta.Valid() {
		x.addSums(f32(a.DBeta), c, 2*c, lo, hi)
	}
}

func rmsNorm(x *exec, lo, hi int) {
	a := x.op.RMSNorm()
	y, in, gamma, stats := f32(a.Y), f32(a.X), f32(a.Gamma), f32(a.Stats)
	c := a.X.Cols()
	for n := lo; n < hi; n++ {
		stats[n] = x.dev.kernels.vec.RMSNorm(y[n*c:][:c], in[n*c:], gamma, a.Eps)
	}
}

func rmsNormGrad(x *exec, lo, hi int) {
	a := x.op.RMSNormGrad()
	dx, dy, in, gamma, stats, skip := f32(a.DX), f32(a.DY), f32(a.X), f32(a.Gamma), f32(a.Stats), optional(a.Skip)
	c := a.X.Cols()
	for n := lo; n < hi; n++ {
		x.dev.kernels.vec.RMSNormGrad(dx[n*c:][:c], dy[n*c:], in[n*c:], gamma, skipRow(skip, n, c), stats[n])
	}
}

func (x *exec) rmsNormWeightGrad() error {
	in := x.op.RMSNormWeightGrad().X
	return x.sumRows(in.Rows(), in.Cols(), in.Cols(), rmsNormWeightBlocks, rmsNormWeightTotals)
}

func rmsNormWeightBlocks(x *exec, lo, hi int) {
	a := x.op.RMSNormWeightGrad()
	dy, in, stats := f32(a.DY), f32(a.X), f32(a.Stats)
	c, rows := a.X.Cols(), a.X.Rows()
	x.sumBlocks(lo, hi, rows, c, func(sums []float32, r0, r1 int) {
		x.dev.kernels.vec.RMSNormWeightGrad(sums, dy[r0*c:r1*c], in[r0*c:r1*c], stats[r0:r1])
	})
}

func rmsNormWeightTotals(x *exec, lo, hi int) {
	a := x.op.RMSNormWeightGrad()
	x.addSums(f32(a.DGamma), 0, a.X.Cols(), lo, hi)
}
