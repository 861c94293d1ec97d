package gemm

import "sync"

// Widened numbers on their way to a strip: rowChunk rows of some columns, or the rows
// of a strip for halfDepth k.
const (
	halfLen   = 8192 // floats, a part of the first-level cache
	halfDepth = halfLen / maxStrip
	maxStrip  = 32 // bounds MR and NR over all kernels
)

var halves = sync.Pool{New: func() any { return new([halfLen]float32) }}

// packHalf is packStrips of a matrix in bfloat16.
func (kn *Kernel) packHalf(dst []float32, m Matrix, depth, width, strip int, rows, cols stripFunc) {
	wide := halves.Get().(*[halfLen]float32)
	defer halves.Put(wide)
	switch {
	case m.Col == 1:
		across := halfLen / rowChunk / strip * strip
		for k := 0; k < depth; k += rowChunk {
			d := min(rowChunk, depth-k)
			for j0 := 0; j0 < width; j0 += across {
				w := min(across, width-j0)
				for r := range d {
					kn.widen(wide[r*across:][:w], m.Half[(k+r)*m.Row+j0:])
				}
				for j := 0; j < w; j += strip {
					rows(dst[(j0+j)*depth+k*strip:][:d*strip], wide[j:], across, d, min(strip, w-j))
				}
			}
		}
	case m.Row == 1:
		for j := 0; j < width; j += strip {
			w := min(strip, width-j)
			for k := 0; k < depth; k += halfDepth {
				d := min(halfDepth, depth-k)
				for r := range w {
					kn.widen(wide[r*halfDepth:][:d], m.Half[(j+r)*m.Col+k:])
				}
				cols(dst[j*depth+k*strip:][:d*strip], wide[:], halfDepth, d, w)
			}
		}
	default:
		for j := 0; j < width; j += strip {
			packAny(dst[j*depth:][:strip*depth], m.At(0, j), strip, depth, min(strip, width-j))
		}
	}
}

func widenGo(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i, h := range src {
		dst[i] = widened(h)
	}
}
