package cuda

import "github.com/troupe-ml/troupe/tensorops"

// columns is sum_columns_args of colsum.cu.
type columns struct {
	partial, x, dy, stats   uint64
	rows, cols, rowsOfBlock int64
	halves, _               uint32
}

// colSumWarps is COLSUM_WARPS of colsum.cu.
const colSumWarps = 8

// sumColumns starts the two passes of colsum.cu: kernel finds for each column of in as many
// sums as there are grads, and those are added to the gradients, of which the last may be 0.
func sumColumns(x *exec, kernel string, in, dy, stats tensorops.Tensor, grads ...uint64) error {
	const (
		most    = 64 // blocks to 32 columns: they fill a device from a width of a few hundred on
		least   = 32 // rows to a block
		warp    = 32
		threads = colSumWarps * warp
	)
	rows, cols, terms := in.Rows(), in.Cols(), len(grads)
	if rows == 0 || cols == 0 {
		return nil
	}
	rowsOfBlock := max(ceil(rows, most), least)
	blocks := ceil(rows, rowsOfBlock)
	partial, err := x.scratch(4 * blocks * terms * cols)
	if err != nil {
		return err
	}
	half := halves(in, dy)
	err = launch(x, mixed(kernel, half), grid{x: ceil(cols, warp), y: blocks, threads: threads}, &columns{
		partial: partial, x: address(in), dy: address(dy), stats: address(stats),
		rows: int64(rows), cols: int64(cols), rowsOfBlock: int64(rowsOfBlock), halves: half,
	})
	if err != nil {
		return err
	}
	args := struct {
		grads         [2]uint64
		partial       uint64
		cols          int64
		blocks, terms int32
	}{partial: partial, cols: int64(cols), blocks: int32(blocks), terms: int32(terms)}
	copy(args.grads[:], grads)
	return launch(x, "add_columns", grid{x: ceil(cols, threads), y: terms, threads: threads}, &args)
}

func colSum(x *exec, o *tensorops.Op) error {
	var none tensorops.Tensor
	a := o.ColSum()
	return sumColumns(x, "col_sum", a.X, none, none, address(a.Sum))
}

func layerNormWeightGrad(x *exec, o *tensorops.Op) error {
	a := o.LayerNormWeightGrad()
	return sumColumns(x, "layer_norm_weight_grad", a.X, a.DY, a.Stats, address(a.DGamma), address(a.DBeta))
}

func rmsNormWeightGrad(x *exec, o *tensorops.Op) error {
	a := o.RMSNormWeightGrad()
	return sumColumns(x, "rms_norm_weight_grad", a.X, a.DY, a.Stats, address(a.DGamma))
}
