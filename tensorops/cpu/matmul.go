package cpu

import "github.com/troupe-ml/troupe/tensorops"

// The blocks of a matrix product. A block of A (blockM × blockK) stays in the
// second-level cache, a panel of B (blockK × blockN) in the third. blockK alone
// decides in which pieces a sum over K is added; it is the same for every path
// and size.
const (
	blockK = 256
	blockM = 192
	blockN = 512
)

// matrix is an operand in memory: element (i, j) of the logical matrix is
// data[i·row + j·col].
type matrix struct {
	data     []float32
	row, col int
}

// matrixOf views a tensor, transposed where asked.
func matrixOf(t tensorops.Tensor, transposed bool) matrix {
	if transposed {
		return matrix{f32(t), 1, t.Stride()}
	}
	return matrix{f32(t), t.Stride(), 1}
}

// at is the matrix from row i and column j on.
func (m matrix) at(i, j int) matrix {
	return matrix{m.data[min(i*m.row+j*m.col, len(m.data)):], m.row, m.col}
}

// matMul splits C in tiles that cores take one by one.
func (x *exec) matMul() error {
	c := x.op.T[0]
	m, n := c.Rows(), c.Cols()
	if m == 0 || n == 0 {
		return nil
	}
	tm, tn := x.tiles(m, n)
	return x.parallel(ceil(m, tm)*ceil(n, tn), 1, matMulTiles)
}

// tiles chooses the size of the tiles: whole blocks when there are enough of
// them for the cores, smaller ones otherwise. It does not touch the sums.
func (x *exec) tiles(m, n int) (tm, tn int) {
	tm, tn = blockM, blockN
	for ceil(m, tm)*ceil(n, tn) < 3*x.dev.cores.threads && x.dev.cores.threads > 1 {
		switch {
		case tn > 128:
			tn /= 2
		case tm > 48:
			tm /= 2
		default:
			return tm, tn
		}
	}
	return tm, tn
}

func ceil(a, b int) int { return (a + b - 1) / b }

func matMulTiles(x *exec, lo, hi int) {
	op := x.op
	a, b := matrixOf(op.T[1], op.Has(tensorops.FlagTransA)), matrixOf(op.T[2], op.Has(tensorops.FlagTransB))
	c := matrixOf(op.T[0], false)
	m, n, k := op.T[0].Rows(), op.T[0].Cols(), op.T[1].Cols()
	if op.Has(tensorops.FlagTransA) {
		k = op.T[1].Rows()
	}
	tm, tn := x.tiles(m, n)
	across := ceil(n, tn)
	for i := lo; i < hi; i++ {
		i0, j0 := i/across*tm, i%across*tn
		mm, nn := min(tm, m-i0), min(tn, n-j0)
		ct := c.at(i0, j0)
		x.gemm(mm, nn, k, a.at(i0, 0), b.at(0, j0), ct, op.Has(tensorops.FlagAccumulate))
		if op.T[3].Valid() {
			bias := f32(op.T[3])[j0 : j0+nn]
			for r := range mm {
				addTo(ct.data[r*ct.row:][:nn], bias)
			}
		}
	}
}

// gemm computes C = A·B, or C += A·B, with A m×k, B k×n and C m×n in rows, on
// the calling core.
func (x *exec) gemm(m, n, k int, a, b, c matrix, add bool) {
	if k == 0 {
		if !add {
			for r := range m {
				clear(c.data[r*c.row:][:n])
			}
		}
		return
	}
	kn := x.dev.kernels
	mr, nr := kn.mr, kn.nr
	for j0 := 0; j0 < n; j0 += blockN {
		nn := min(blockN, n-j0)
		for k0 := 0; k0 < k; k0 += blockK {
			kk := min(blockK, k-k0)
			pb := pack(scratch(&x.packB, ceil(nn, nr)*nr*kk), b.at(k0, j0), kk, nn, nr)
			for i0 := 0; i0 < m; i0 += blockM {
				mm := min(blockM, m-i0)
				at := a.at(i0, k0)
				pa := pack(scratch(&x.packA, ceil(mm, mr)*mr*kk), matrix{at.data, at.col, at.row}, kk, mm, mr)
				x.block(kn, mm, nn, kk, pa, pb, c.at(i0, j0), add || k0 > 0)
			}
		}
	}
}

// block multiplies two packed blocks tile by tile. Tiles at the border of C are
// computed whole beside it and copied, by the same sums.
func (x *exec) block(kn *kernels, mm, nn, kk int, pa, pb []float32, c matrix, add bool) {
	mr, nr := kn.mr, kn.nr
	for j := 0; j < nn; j += nr {
		bt := &pb[j*kk]
		for i := 0; i < mm; i += mr {
			at := &pa[i*kk]
			if i+mr <= mm && j+nr <= nn {
				kn.tile(kk, at, bt, &c.data[i*c.row+j], c.row, add)
				continue
			}
			edge := scratch(&x.edge, mr*nr)
			kn.tile(kk, at, bt, &edge[0], nr, false)
			w := min(nr, nn-j)
			for r := range min(mr, mm-i) {
				dst, src := c.data[(i+r)*c.row+j:][:w], edge[r*nr:][:w]
				if add {
					addTo(dst, src)
				} else {
					copy(dst, src)
				}
			}
		}
	}
}
