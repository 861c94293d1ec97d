package gemm

// LenA is the number of floats that a packed block of A takes: m rows of depth k.
func (kn *Kernel) LenA(m, k int) int { return ceil(m, kn.MR) * kn.MR * k }

// LenB is the number of floats that a packed block of B takes: n columns of depth k.
func (kn *Kernel) LenB(k, n int) int { return ceil(n, kn.NR) * kn.NR * k }

// PackA packs m rows of A, of depth k, into dst.
func (kn *Kernel) PackA(dst []float32, a Matrix, m, k int) {
	kn.pack(dst, a.T(), k, m, kn.MR, kn.packRowsA, kn.packColsA)
}

// PackB packs n columns of B, of depth k, into dst.
func (kn *Kernel) PackB(dst []float32, b Matrix, k, n int) {
	kn.pack(dst, b, k, n, kn.NR, kn.packRowsB, kn.packColsB)
}

func (kn *Kernel) pack(dst []float32, m Matrix, depth, width, strip int, rows, cols stripFunc) {
	if !m.wide() {
		kn.packHalf(dst, m, depth, width, strip, rows, cols)
		return
	}
	packStrips(dst, m, depth, width, strip, rows, cols)
}

// StripA packs one strip of A, of at most MR rows: row i is at src + i·stride,
// contiguous along k.
func (kn *Kernel) StripA(dst, src []float32, stride, depth, rows int) {
	kn.packColsA(dst, src, stride, depth, rows)
}

// Transpose stores dst[j·dstRow + i] = src[i·srcRow + j].
func (kn *Kernel) Transpose(dst []float32, dstRow int, src []float32, srcRow, rows, cols int) {
	for i := 0; i < rows; i += kn.lanes {
		kn.transpose(dst[i:], dstRow, src[i*srcRow:], srcRow, cols, min(kn.lanes, rows-i))
	}
}

// rowChunk is the number of k after which packing goes on to the next strip when
// elements of a strip are contiguous: as many pages of memory are in use at a
// time.
const rowChunk = 32

// packStrips packs a block of depth × width, element (k, j) of m.
func packStrips(dst []float32, m Matrix, depth, width, strip int, rows, cols stripFunc) {
	if m.Col == 1 {
		for k := 0; k < depth; k += rowChunk {
			d := min(rowChunk, depth-k)
			for j := 0; j < width; j += strip {
				rows(dst[j*depth+k*strip:][:d*strip], m.Data[k*m.Row+j:], m.Row, d, min(strip, width-j))
			}
		}
		return
	}
	for j := 0; j < width; j += strip {
		out, w := dst[j*depth:][:strip*depth], min(strip, width-j)
		if m.Row == 1 {
			cols(out, m.Data[j*m.Col:], m.Col, depth, w)
		} else {
			packAny(out, m.At(0, j), strip, depth, w)
		}
	}
}

// packAny packs a strip of a matrix that is contiguous in neither direction.
func packAny(dst []float32, m Matrix, strip, depth, width int) {
	for k := range depth {
		for j := range width {
			dst[k*strip+j] = m.at(k, j)
		}
	}
}

// rowsGo packs strips of the given size whose elements are contiguous.
func rowsGo(strip int) stripFunc {
	return func(dst, src []float32, stride, depth, width int) {
		for k := range depth {
			copy(dst[k*strip:][:width], src[k*stride:])
		}
	}
}

// colsGo packs strips of the given size along k, four elements at a time.
func colsGo(strip int) stripFunc {
	return func(dst, src []float32, stride, depth, width int) {
		j := 0
		for ; j+4 <= width; j += 4 {
			s0, s1 := src[j*stride:][:depth], src[(j+1)*stride:][:depth]
			s2, s3 := src[(j+2)*stride:][:depth], src[(j+3)*stride:][:depth]
			o := dst[j:]
			for k := range s0 {
				q := (*[4]float32)(o[k*strip:])
				q[0], q[1], q[2], q[3] = s0[k], s1[k], s2[k], s3[k]
			}
		}
		for ; j < width; j++ {
			for k, v := range src[j*stride:][:depth] {
				dst[k*strip+j] = v
			}
		}
	}
}
