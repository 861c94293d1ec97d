package cuda

import "github.com/troupe-ml/troupe/tensorops"

var normLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindLayerNorm:           layerNorm,
	tensorops.KindLayerNormGrad:       layerNormGrad,
	tensorops.KindLayerNormWeightGrad: layerNormWeightGrad,
	tensorops.KindRMSNorm:             rmsNorm,
	tensorops.KindRMSNormGrad:         rmsNormGrad,
	tensorops.KindRMSNormWeightGrad:   rmsNormWeightGrad,
	tensorops.KindColSum:              colSum,
}

// rowThreads is how many threads a block has that works on a row of n elements: a
// few fours for each, in whole warps. Sums over a row depend on it, and so it depends on
// nothing but the row.
func rowThreads(cols int) int {
	const elements, warp = 16, 32 // a thread's share
	return min(max(ceil(ceil(cols, elements), warp)*warp, warp), 512)
}

// onRows starts a kernel in which each block has a row.
func onRows[A any](x *exec, kernel string, rows, cols int, args *A) error {
	if rows == 0 || cols == 0 {
		return nil
	}
	return launch(x, kernel, grid{x: rows, threads: rowThreads(cols)}, args)
}

// alignedRows is alignedFours for rows that follow each other without a gap.
func alignedRows(cols int, operands ...tensorops.Tensor) uint32 {
	if cols%4 != 0 {
		return 0
	}
	return alignedFours(operands...)
}

func layerNorm(x *exec, o *tensorops.Op) error {
	a := o.LayerNorm()
	return normalise(x, "layer_norm", a.Y, a.X, a.Gamma, a.Beta, a.Stats, a.Eps)
}

func rmsNorm(x *exec, o *tensorops.Op) error {
	a := o.RMSNorm()
	return normalise(x, "rms_norm", a.Y, a.X, a.Gamma, tensorops.Tensor{}, a.Stats, a.Eps)
}

func normalise(x *exec, kernel string, out, in, weight, bias, stats tensorops.Tensor, eps float64) error {
	cols, half := in.Cols(), halves(out, in)
	return onRows(x, mixed(kernel, half), in.Rows(), cols, &struct {
		y, x, gamma, beta, stats uint64
		eps                      float64
		cols                     int64
		aligned, halves          uint32
	}{
		y: address(out), x: address(in), gamma: address(weight), beta: address(bias), stats: address(stats),
		eps: eps, cols: int64(cols), aligned: alignedRows(cols, out, in, weight, bias), halves: half,
	})
}

func layerNormGrad(x *exec, o *tensorops.Op) error {
	return normGrad(x, "layer_norm_grad", o.LayerNormGrad())
}

func rmsNormGrad(x *exec, o *tensorops.Op) error {
	return normGrad(x, "rms_norm_grad", o.RMSNormGrad())
}

func normGrad(x *exec, kernel string, a tensorops.NormGradArgs) error {
	cols, half := a.X.Cols(), halves(a.DX, a.DY, a.X, a.Skip)
	return onRows(x, mixed(kernel, half), a.X.Rows(), cols, &struct {
		dx, dy, x, gamma, stats, skip uint64
		cols                          int64
		aligned, halves               uint32
	}{
		dx: address(a.DX), dy: address(a.DY), x: address(a.X), gamma: address(a.Gamma), stats: address(a.Stats), skip: address(a.Skip),
		cols: int64(cols), aligned: alignedRows(cols, a.DX, a.DY, a.X, a.Gamma, a.Skip), halves: half,
	})
}
