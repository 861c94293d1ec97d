package cpu

import "slices"

// A sum over rows is made in two passes: cores take blocks of rows, which are
// contiguous in memory and are added in float32 in ascending order; then the
// blocks' sums are added in float64, also in ascending order. The blocks depend
// on nothing but the number of rows.

// sumBlock is the number of rows in a block.
const sumBlock = 32

// sumRows runs block over the blocks and then finish over the columns. A block
// has width sums.
func (x *exec) sumRows(rows, cols, width int, block, finish rangeFunc) error {
	blocks := (rows + sumBlock - 1) / sumBlock
	x.partial = scratch(&x.partial, blocks*width)
	if err := x.parallel(blocks, 1, block); err != nil {
		return err
	}
	return x.parallel(cols, 4*colGrain, finish)
}

// sumBlocks is the first pass for blocks lo to hi−1. sum adds the rows r0 to
// r1−1 to sums that are 0 before.
func (x *exec) sumBlocks(lo, hi, rows, width int, sum func(sums []float32, r0, r1 int)) {
	sums := scratch(&x.rows, width)
	for b := lo; b < hi; b++ {
		clear(sums)
		sum(sums, b*sumBlock, min((b+1)*sumBlock, rows))
		out := x.partial[b*width:][:width]
		for j, v := range sums {
			out[j] = float64(v)
		}
	}
}

// fewRows calls add for all rows of a block at once, or for four at a time where they are
// bfloat16 and are widened first: as many as the loops add in one go, so that it changes no bit.
func fewRows(r0, r1 int, add func(r0, r1 int), in ...values) {
	if !slices.ContainsFunc(in, values.half) {
		add(r0, r1)
		return
	}
	for ; r0 < r1; r0 += 4 {
		add(r0, min(r0+4, r1))
	}
}

// addSums is the second pass for columns lo to hi−1. They begin at first in each
// block's sums.
func (x *exec) addSums(dst []float32, first, width, lo, hi int) {
	var total [colGrain]float64
	for j0 := lo; j0 < hi; j0 += colGrain {
		n := min(colGrain, hi-j0)
		clear(total[:])
		for at := first + j0; at < len(x.partial); at += width {
			for j, v := range x.partial[at:][:n] {
				total[j] += v
			}
		}
		for j := range n {
			dst[j0+j] += float32(total[j])
		}
	}
}
