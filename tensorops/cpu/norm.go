package cpu

import "github.com/troupe-ml/troupe/tensorops"

func layerNorm(x *exec, lo, hi int) {
	a := x.op.LayerNorm()
	y, in, gamma, beta, stats := x.values(0, a.Y), x.values(1, a.X), f32(a.Gamma), optional(a.Beta), f32(a.Stats)
	c := a.X.Cols()
	for n := lo; n < hi; n++ {
		out := x.room(y, n*c, (n+1)*c)
		stats[2*n], stats[2*n+1] = x.dev.kernels.vec.LayerNorm(out, x.get(in, n*c, (n+1)*c), gamma, beta, a.Eps)
		x.put(y, n*c, out)
	}
}

func layerNormGrad(x *exec, lo, hi int) {
	a := x.op.LayerNormGrad()
	r, gamma, stats, c := x.normGrad(a), f32(a.Gamma), f32(a.Stats), a.X.Cols()
	for n := lo; n < hi; n++ {
		i, j := n*c, (n+1)*c
		out := x.room(r.dx, i, j)
		x.dev.kernels.vec.LayerNormGrad(out, x.get(r.dy, i, j), x.get(r.in, i, j), gamma, x.get(r.skip, i, j), stats[2*n], stats[2*n+1])
		x.put(r.dx, i, out)
	}
}

// normGrad are the operands of a norm's gradient that may be of either type.
type normGrad struct{ dx, dy, in, skip values }

func (x *exec) normGrad(a tensorops.NormGradArgs) normGrad {
	return normGrad{x.values(0, a.DX), x.values(1, a.DY), x.values(2, a.X), x.values(3, a.Skip)}
}

func (x *exec) layerNormWeightGrad() error {
	in := x.op.LayerNormWeightGrad().X
	return x.sumRows(in.Rows(), in.Cols(), 2*in.Cols(), layerNormWeightBlocks, layerNormWeightTotals)
}

func layerNormWeightBlocks(x *exec, lo, hi int) {
	a := x.op.LayerNormWeightGrad()
	dy, in, stats := x.values(0, a.DY), x.values(1, a.X), f32(a.Stats)
	c, rows := a.X.Cols(), a.X.Rows()
	x.sumBlocks(lo, hi, rows, 2*c, func(sums []float32, r0, r1 int) {
		fewRows(r0, r1, func(r0, r1 int) {
			x.dev.kernels.vec.LayerNormWeightGrad(sums[:c], sums[c:], x.get(dy, r0*c, r1*c), x.get(in, r0*c, r1*c), stats[2*r0:2*r1])
		}, dy, in)
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

// moved is gamma + offset, in memory that the next call may use again: what a range of rows is multiplied by.
func (x *exec) moved(gamma []float32, offset float64) []float32 {
	if offset == 0 {
		return gamma
	}
	n := len(gamma)
	both := scratch(&x.gamma, 2*n)
	sum, offsets := both[:n], both[n:]
	fillAll(offsets, float32(offset))
	x.dev.kernels.vec.Add(sum, gamma, offsets)
	return sum
}

func rmsNorm(x *exec, lo, hi int) {
	a := x.op.RMSNorm()
	y, in, gamma, stats := x.values(0, a.Y), x.values(1, a.X), x.moved(f32(a.Gamma), a.Offset), f32(a.Stats)
	c := a.X.Cols()
	for n := lo; n < hi; n++ {
		out := x.room(y, n*c, (n+1)*c)
		stats[n] = x.dev.kernels.vec.RMSNorm(out, x.get(in, n*c, (n+1)*c), gamma, a.Eps)
		x.put(y, n*c, out)
	}
}

func rmsNormGrad(x *exec, lo, hi int) {
	a := x.op.RMSNormGrad()
	r, gamma, stats, c := x.normGrad(a), x.moved(f32(a.Gamma), a.Offset), f32(a.Stats), a.X.Cols()
	for n := lo; n < hi; n++ {
		i, j := n*c, (n+1)*c
		out := x.room(r.dx, i, j)
		x.dev.kernels.vec.RMSNormGrad(out, x.get(r.dy, i, j), x.get(r.in, i, j), gamma, x.get(r.skip, i, j), stats[n])
		x.put(r.dx, i, out)
	}
}

func (x *exec) rmsNormWeightGrad() error {
	in := x.op.RMSNormWeightGrad().X
	return x.sumRows(in.Rows(), in.Cols(), in.Cols(), rmsNormWeightBlocks, rmsNormWeightTotals)
}

func rmsNormWeightBlocks(x *exec, lo, hi int) {
	a := x.op.RMSNormWeightGrad()
	dy, in, stats := x.values(0, a.DY), x.values(1, a.X), f32(a.Stats)
	c, rows := a.X.Cols(), a.X.Rows()
	x.sumBlocks(lo, hi, rows, c, func(sums []float32, r0, r1 int) {
		fewRows(r0, r1, func(r0, r1 int) {
			x.dev.kernels.vec.RMSNormWeightGrad(sums, x.get(dy, r0*c, r1*c), x.get(in, r0*c, r1*c), stats[r0:r1])
		}, dy, in)
	})
}

func rmsNormWeightTotals(x *exec, lo, hi int) {
	a := x.op.RMSNormWeightGrad()
	x.addSums(f32(a.DGamma), 0, a.X.Cols(), lo, hi)
}
