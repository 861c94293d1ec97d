package gemm

import "github.com/troupe-ml/troupe/tensorops/internal/quant"

// Block sizes. A block of A (BlockM × BlockK) stays in the second-level cache,
// a strip of B (BlockK × NR) in the first.
const (
	BlockK = 256
	BlockM = 192 // a multiple of every MR
	BlockN = 512 // a multiple of every NR
)

// maxTile bounds MR·NR over all kernels.
const maxTile = 12 * 32

// Kernel is one path's inner loops.
type Kernel struct {
	Name   string
	MR, NR int

	// tile[r] multiplies strips of A, one after the other in memory, by one
	// strip of B: C = A·B, or C += A·B where add is set. lda and ldb are the
	// distances from k to k, ldc that of C's rows. Each strip counts with
	// its first r rows; C's pointer moves down by r rows from strip to strip,
	// so that strips > 1 makes sense for r = MR only. next is the Memory that
	// is fetched.
	tile    []tileFunc
	strided bool // tiles read operands with any lda and ldb, not only packed ones
	fetches bool // tiles fetch what is next

	packRowsA, packRowsB stripFunc // elements of a strip are contiguous in memory
	packColsA, packColsB stripFunc // consecutive k are contiguous in memory

	// transpose stores dst[k·dstRow + j] = src[j·srcRow + k] for k below depth
	// and j below rows ≤ lanes.
	transpose func(dst []float32, dstRow int, src []float32, srcRow, depth, rows int)
	lanes     int

	widen  func(dst []float32, src []uint16) // of bfloat16, as many as dst holds
	decode quant.Decoder
}

type tileFunc func(strips, k int, a, b, c *float32, lda, ldb, ldc int, add bool, next *byte, lines, perRow, skip int)

// stripFunc packs one strip of depth k: dst[k·strip + j] = element (k, j), for j
// below width. stride is the distance in memory between consecutive k
// (packRows…) or consecutive j (packCols…).
type stripFunc func(dst, src []float32, stride, depth, width int)

// Go is the path that every processor can run.
var Go = Kernel{
	Name: "go", MR: 4, NR: 4,
	tile:      []tileFunc{nil, tileGo1, tileGo2, tileGo3, tileGo4},
	packRowsA: rowsGo(4), packRowsB: rowsGo(4),
	packColsA: colsGo(4), packColsB: colsGo(4),
	transpose: transposeGo, lanes: 4,
	widen: widenGo, decode: quant.Format.Decode,
}

func ceil(a, b int) int { return (a + b - 1) / b }

func transposeGo(dst []float32, dstRow int, src []float32, srcRow, depth, rows int) {
	for j := range rows {
		for k, v := range src[j*srcRow:][:depth] {
			dst[k*dstRow+j] = v
		}
	}
}
