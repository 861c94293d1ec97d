package gemm

import "unsafe"

// amxSquare is what a strip has for each step of the depth, in floats.
const amxSquare = amxStrip * amxStep / 2

// packSquares packs width rows of a matrix, each k deep: in strips of an A, or of a B.
// Element (i, j) is data[i·row + j·col].
func packSquares[T float32 | uint16](dst []float32, data []T, row, col, width, k int, forB bool) {
	size := int(unsafe.Sizeof(data[0]))
	whole, strips := k/amxStep, width/amxStrip
	length := ceil(k, amxStep) * amxSquare
	switch {
	case col == 1 && whole > 0:
		for j := range strips {
			packRows(forB, &dst[j*length], &data[j*amxStrip*row], size*row, whole, 4*amxSquare, size*amxStep)
		}
	case row == 1 && strips > 0:
		for s := range whole {
			packCols(forB, &dst[s*amxSquare], &data[s*amxStep*col], size*col, strips, 4*length, size*amxStrip)
		}
	default:
		whole, strips = 0, 0
	}
	for j := 0; j < ceil(width, amxStrip); j++ {
		s := 0
		if j < strips {
			s = whole
		}
		for ; s*amxStep < k; s++ {
			packBorder(forB, &dst[j*length+s*amxSquare], data[j*amxStrip*row+s*amxStep*col:], row, col, min(amxStrip, width-j*amxStrip),
				min(amxStep, k-s*amxStep))
		}
	}
}

// packBorder packs a square of which only some rows and some of the depth exist.
func packBorder[T float32 | uint16](forB bool, dst *float32, data []T, row, col, width, k int) {
	var square [amxStrip * amxStep]T
	size := int(unsafe.Sizeof(square[0]))
	if row == 1 {
		for c := range k {
			copy(square[c*amxStrip:][:width], data[c*col:])
		}
		packCols(forB, dst, &square[0], size*amxStrip, 1, 0, 0)
		return
	}
	for r := range width {
		to := square[r*amxStep:][:k]
		if col == 1 {
			copy(to, data[r*row:])
			continue
		}
		for c := range to {
			to[c] = data[r*row+c*col]
		}
	}
	packRows(forB, dst, &square[0], size*amxStep, 1, 0, 0)
}

// packRows and packCols choose the function by name, so that the compiler sees that
// it keeps none of its pointers.
func packRows[T float32 | uint16](forB bool, dst *float32, src *T, stride, steps, dstStep, srcStep int) {
	switch src := any(src).(type) {
	case *float32:
		if forB {
			packAMXRowsT(dst, src, stride, steps, dstStep, srcStep)
		} else {
			packAMXRows(dst, src, stride, steps, dstStep, srcStep)
		}
	case *uint16:
		if forB {
			packAMXRowsHalfT(dst, src, stride, steps, dstStep, srcStep)
		} else {
			packAMXRowsHalf(dst, src, stride, steps, dstStep, srcStep)
		}
	}
}

func packCols[T float32 | uint16](forB bool, dst *float32, src *T, stride, steps, dstStep, srcStep int) {
	switch src := any(src).(type) {
	case *float32:
		if forB {
			packAMXCols(dst, src, stride, steps, dstStep, srcStep)
		} else {
			packAMXColsT(dst, src, stride, steps, dstStep, srcStep)
		}
	case *uint16:
		if forB {
			packAMXColsHalf(dst, src, stride, steps, dstStep, srcStep)
		} else {
			packAMXColsHalfT(dst, src, stride, steps, dstStep, srcStep)
		}
	}
}
