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

// alignedRows is aligned for rows that follow each other without a gap.
func alignedRows(cols int, addresses ...uint64) uint32 {
	if cols%4 != 0 {
		return 0
	}
	return aligned(addresses...)
}

// alignedRowsOf is alignedFours for rows that follow each other without a gap.
func alignedRowsOf(cols int, operands ...tensorops.Tensor) uint32 {
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
	y, from, gamma, beta, cols := address(out), address(in), address(weight), address(bias), in.Cols()
	return onRows(x, kernel, in.Rows(), cols, &struct {
		y, x, gamma, beta, stats uint64
		eps                      float64
		cols                     int64
		aligned, pad             uint32
	}{y: y, x: from, gamma: gamma, beta: beta, stats: address(stats), eps: eps, cols: int64(cols), aligned: alignedRows(cols, y, from, gamma, beta)})
}

func layerNormGrad(x *exec, o *tensorops.Op) error {
	return normGrad(x, "layer_norm_grad", o.LayerNormGrad())
}

func rmsNormGrad(x *exec, o *tensorops.Op) error {
	return normGrad(x, "rms_norm_grad", o.RMSNormGrad())
}

func normGrad(x *exec, kernel string, a tensorops.NormGradArgs) error {
	dx, dy, in, gamma, skip := address(a.DX), address(a.DY), address(a.X), address(a.Gamma), address(a.Skip)
	cols := a.X.Cols()
	return onRows(x, kernel, a.X.Rows(), cols, &struct {
		dx, dy, x, gamma, stats, skip uint64
		cols                          int64
		aligned, pad                  uint32
	}{dx: dx, dy: dy, x: in, gamma: gamma, stats: address(a.Stats), skip: skip, cols: int64(cols), aligned: alignedRows(cols, dx, dy, in, gamma, skip)})
}
