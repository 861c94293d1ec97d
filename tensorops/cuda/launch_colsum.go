package cuda

import "github.com/troupe-ml/troupe/tensorops"

// columns is sum_columns_args of colsum.cu.
type columns struct {
	partial, x, dy, stats   uint64
	rows, cols, rowsOfBlock int64
	aligned, halves         uint32
}

const (
	colSumWarps = 8   // COLSUM_WARPS of colsum.cu
	colSumWidth = 256 // COLSUM_WIDTH of it
	addWarps    = 16  // ADD_WARPS of it
)

// sumColumns starts the two passes of colsum.cu: kernel finds for each column of in as many
// sums as there are grads, and those are added to the gradients, of which the last may be 0.
func sumColumns(x *exec, kernel string, in, dy, stats tensorops.Tensor, grads ...uint64) error {
	const (
		most  = 256 // blocks to as many columns: with three they fill a device, which 768 columns are
		least = 4 * colSumWarps
	)
	rows, cols := in.Rows(), in.Cols()
	if rows == 0 || cols == 0 {
		return nil
	}
	rowsOfBlock := max(ceil(rows, most), least)
	blocks := ceil(rows, rowsOfBlock)
	partial, err := x.scratch(4 * blocks * len(grads) * cols)
	if err != nil {
		return err
	}
	err = launch(x, kernel, grid{x: ceil(cols, colSumWidth), y: blocks, threads: colSumWarps * 32}, &columns{
		partial: partial, x: address(in), dy: address(dy), stats: address(stats),
		rows: int64(rows), cols: int64(cols), rowsOfBlock: int64(rowsOfBlock),
		aligned: alignedEightRows(cols, in, dy), halves: halves(in, dy),
	})
	if err != nil {
		return err
	}
	return addColumns(x, partial, cols, blocks, grads)
}

// addColumns starts the second pass, over partial sums [blocks][len(grads)][cols].
func addColumns(x *exec, partial uint64, cols, blocks int, grads []uint64) error {
	args := struct {
		grads         [2]uint64
		partial       uint64
		cols          int64
		blocks, terms int32
	}{partial: partial, cols: int64(cols), blocks: int32(blocks), terms: int32(len(grads))}
	copy(args.grads[:], grads)
	return launch(x, "add_columns", grid{x: ceil(cols, warp), y: len(grads), threads: addWarps * warp}, &args)
}

func colSum(x *exec, o *tensorops.Op) error {
	var none tensorops.Tensor
	a := o.ColSum()
	return sumColumns(x, "col_sum", a.X, none, none, address(a.Sum))
}
