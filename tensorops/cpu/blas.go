package cpu

import (
	"fmt"
	"sync"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// Gemm computes C = alpha·A·B + beta·C on the calling core, with the machine's best float32 path. A
// is m×k, B k×n, C m×n. Rows are contiguous and lda, ldb and ldc numbers apart; A and B may be
// stored transposed. It is for libraries that use a BLAS. Tensors use MatMul, on all of a device's
// cores.
//
// With alpha 1 and beta 0 or 1, an element is bit-identical to MatMul's, on any goroutine. With
// beta 0, C is not read.
func Gemm(transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32,
	ldc int) error {
	return gemmOn(available()[0].gemm, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

// gemmRoom is what a product of one core packs into. There are as many as there are
// products at the same time; the collector takes those that stay unused.
type gemmRoom struct{ a, b, c []float32 }

var gemmRooms = sync.Pool{New: func() any { return new(gemmRoom) }}

func room(buf *[]float32, n int) []float32 {
	if cap(*buf) < n {
		*buf = make([]float32, n)
	}
	return (*buf)[:n]
}

// gemmOn is Gemm by one path.
func gemmOn(kn gemm.Multiplier, transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32,
	c []float32, ldc int) error {
	if m < 0 || n < 0 || k < 0 {
		return fmt.Errorf("cpu: Gemm: %w: m %d, n %d and k %d must not be negative", tensorops.ErrShape, m, n, k)
	}
	ma, err := operand("A", a, m, k, lda, transA)
	if err != nil {
		return err
	}
	mb, err := operand("B", b, k, n, ldb, transB)
	if err != nil {
		return err
	}
	mc, err := operand("C", c, m, n, ldc, false)
	if err != nil {
		return err
	}
	if m == 0 || n == 0 {
		return nil
	}
	ws := gemmRooms.Get().(*gemmRoom)
	defer gemmRooms.Put(ws)
	switch {
	case k == 0 || alpha == 0:
		scaleRows(mc, m, n, beta)
	case alpha == 1 && (beta == 0 || beta == 1):
		multiplyOn(kn, ws, mc, ma, mb, m, n, k, beta == 1)
	default:
		part := gemm.Matrix{Data: room(&ws.c, m*n), Row: n, Col: 1}
		multiplyOn(kn, ws, part, ma, mb, m, n, k, false)
		scaleRows(mc, m, n, beta)
		for i := range m {
			row := c[i*ldc:][:n]
			for j, v := range part.Data[i*n:][:n] {
				row[j] += float32(alpha * v) // not fused with the addition, as arm64 would
			}
		}
	}
	return nil
}

// operand views rows × cols numbers, after a look at the memory that they take.
func operand(name string, data []float32, rows, cols, ld int, transposed bool) (gemm.Matrix, error) {
	r, c := rows, cols
	if transposed {
		r, c = cols, rows
	}
	if ld < max(1, c) {
		return gemm.Matrix{}, fmt.Errorf("cpu: Gemm: %w: %s has %d numbers in a row, but its rows are %d apart", tensorops.ErrShape, name, c, ld)
	}
	if r > 0 && c > 0 && (len(data) < c || (len(data)-c)/ld < r-1) {
		return gemm.Matrix{}, fmt.Errorf("cpu: Gemm: %w: %s is %d×%d with rows %d apart, which does not fit in %d numbers", tensorops.ErrShape,
			name, r, c, ld,
			len(data))
	}
	m := gemm.Matrix{Data: data, Row: ld, Col: 1}
	if transposed {
		return m.T(), nil
	}
	return m, nil
}

func scaleRows(c gemm.Matrix, m, n int, beta float32) {
	for i := range m {
		row := c.Data[i*c.Row:][:n]
		switch beta {
		case 0:
			clear(row)
		case 1:
		default:
			for j := range row {
				row[j] *= beta
			}
		}
	}
}

// multiplyOn computes C = A·B, or C += A·B where add is set, block by block.
func multiplyOn(kn gemm.Multiplier, ws *gemmRoom, c, a, b gemm.Matrix, m, n, k int, add bool) {
	if path, ok := kn.(*gemm.Kernel); ok && m*n*k <= limitAlone {
		if path.Direct(c, a, b, m, n, k, add, func(n int) []float32 { return room(&ws.a, n) }) {
			return
		}
	}
	depth := kn.Depth(k)
	for k0 := 0; k0 < k; k0 += depth {
		kk := min(depth, k-k0)
		for j := 0; j < n; j += gemm.BlockN {
			nn := min(gemm.BlockN, n-j)
			pb := room(&ws.b, kn.LenB(kk, nn))
			kn.PackB(pb, b.At(k0, j), kk, nn)
			for i := 0; i < m; i += gemm.BlockM {
				mm := min(gemm.BlockM, m-i)
				pa := room(&ws.a, kn.LenA(mm, kk))
				kn.PackA(pa, a.At(i, k0), mm, kk)
				kn.Block(c.At(i, j), mm, nn, kk, pa, pb, add || k0 > 0)
			}
		}
	}
}
