//go:build amd64 || arm64

package gemm

// Packing of strips by the assembly loops, whose names are the same on both architectures.

func rows6(dst, src []float32, stride, depth, width int) {
	rows(copy6, 6, dst, src, stride, depth, width)
}
func rows16(dst, src []float32, stride, depth, width int) {
	rows(copy16, 16, dst, src, stride, depth, width)
}

func rows(whole func(dst, src *float32, stride, depth int), strip int, dst, src []float32, stride, depth, width int) {
	if width == strip {
		whole(&dst[0], &src[0], 4*stride, depth)
		return
	}
	for k := range depth {
		copy(dst[k*strip:][:width], src[k*stride:])
	}
}

// transposeFunc is described at transpose8.
type transposeFunc func(dst *float32, strip int, src *float32, stride, eights, rows int)

func cols6(dst, src []float32, stride, depth, width int) {
	cols(transpose6, 6, 6, 0, dst, src, stride, depth, width)
}

func cols16(dst, src []float32, stride, depth, width int) {
	for j := 0; j < 16; j += 8 {
		cols(transpose8, 8, 16, j, dst, src, stride, depth, width)
	}
}

// cols packs the elements j to j+lanes−1 of a strip, as far as they exist.
func cols(whole transposeFunc, lanes, strip, j int, dst, src []float32, stride, depth, width int) {
	n := min(lanes, width-j)
	if n <= 0 {
		return
	}
	if eights := depth / 8; eights > 0 {
		whole(&dst[j], 4*strip, &src[j*stride], 4*stride, eights, n)
	}
	for k := depth &^ 7; k < depth; k++ {
		for i := j; i < j+n; i++ {
			dst[k*strip+i] = src[i*stride+k]
		}
	}
}

// transposeEights transposes whole squares of 8 × 8 by vectors.
func transposeEights(dst []float32, dstRow int, src []float32, srcRow, depth, rows int) {
	if rows < 8 {
		transposeGo(dst, dstRow, src, srcRow, depth, rows)
		return
	}
	if depth >= 8 {
		transpose8(&dst[0], 4*dstRow, &src[0], 4*srcRow, depth/8, 8)
	}
	if k := depth &^ 7; k < depth {
		transposeGo(dst[k*dstRow:], dstRow, src[k:], srcRow, depth-k, 8)
	}
}

// widenSixteens widens sixteen numbers at a time by vectors.
func widenSixteens(dst []float32, src []uint16) {
	n := len(dst) &^ 15
	if n > 0 {
		_ = src[n-1]
		widen16(&dst[0], &src[0], n/16)
	}
	widenGo(dst[n:], src[n:])
}
