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

// packHalf is packStrips of a matrix in bfloat16, or in fewer bits.
func (kn *Kernel) packHalf(dst []float32, m Matrix, depth, width, strip int, rows, cols stripFunc) {
	if m.Col != 1 && m.Row != 1 {
		for j := 0; j < width; j += strip {
			packAny(dst[j*depth:][:strip*depth], m.At(0, j), strip, depth, min(strip, width-j))
		}
		return
	}
	kn.pieces(m, depth, width, strip, func(p piece) {
		pack := rows
		if p.deep {
			pack = cols
		}
		pack(dst[p.j*depth+p.k*strip:][:p.depth*strip], p.wide, p.stride, p.depth, p.width)
	})
}

// piece is a part of a strip in float32: of the strip from element j on, for the depth from k on.
type piece struct {
	j, k, width, depth int
	wide               []float32
	stride             int  // distance between consecutive k, or if deep between consecutive elements
	deep               bool // consecutive k are contiguous
}

// pieces widens a matrix that is contiguous in one direction piece by piece. The depth of a piece, except
// for the last of a strip, is a multiple of rowChunk.
func (kn *Kernel) pieces(m Matrix, depth, width, strip int, each func(p piece)) {
	wide := halves.Get().(*[halfLen]float32)
	defer halves.Put(wide)
	if m.Col == 1 {
		across := halfLen / rowChunk / strip * strip
		for k := 0; k < depth; k += rowChunk {
			d := min(rowChunk, depth-k)
			for j0 := 0; j0 < width; j0 += across {
				w := min(across, width-j0)
				for r := range d {
					kn.widenAt(wide[r*across:][:w], &m, (k+r)*m.Row+j0)
				}
				for j := 0; j < w; j += strip {
					each(piece{j: j0 + j, k: k, width: min(strip, w-j), depth: d, wide: wide[j:], stride: across})
				}
			}
		}
		return
	}
	for j := 0; j < width; j += strip {
		w := min(strip, width-j)
		for k := 0; k < depth; k += halfDepth {
			d := min(halfDepth, depth-k)
			for r := range w {
				kn.widenAt(wide[r*halfDepth:][:d], &m, (j+r)*m.Col+k)
			}
			each(piece{j: j, k: k, width: w, depth: d, wide: wide[:], stride: halfDepth, deep: true})
		}
	}
}

// widenAt stores consecutive numbers from an index on.
func (kn *Kernel) widenAt(dst []float32, m *Matrix, at int) {
	if m.Coded != nil {
		m.Coded.Numbers(dst, m.First+at, kn.decode)
		return
	}
	kn.widen(dst, m.Half[at:])
}

func widenGo(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i, h := range src {
		dst[i] = widened(h)
	}
}
