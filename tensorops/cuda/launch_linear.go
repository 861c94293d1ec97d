package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

var linearLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindPack: pack,
}

// matmulArgs is matmul_args of matmul.cuh.
type matmulArgs struct {
	c, a, b, bias             uint64
	cStride, aStride, bStride int64
	first, last               int64
	m, n                      int32
	parts, accumulate, bf16   int32
	quadsA, quadsB, quadsC    int32
}

// matmulSumArgs is matmul_sum_args of matmul.cu.
type matmulSumArgs struct {
	c, parts, bias           uint64
	cStride, elements        int64
	n, pieces, accumulate, _ int32
}

const (
	matmulThreads = 256
	// pieceDepth is DEPTH of matmul.cuh: sums over the depth are cut in pieces of it.
	pieceDepth = 512
	// limitParts bounds the bytes of pieces that wait for their sum.
	limitParts = 64 << 20
)

// product is C = op(A)·op(B), plus C before or a bias.
type product struct {
	tensorops.MatMulArgs
	m, n, k int
	form    int // which of tiled128 and tiled64
}

// The kernels by form: 2 if A is stored transposed, plus 1 if B is.
var (
	tiled128 = [4]string{"matmul_nn_128", "matmul_nt_128", "matmul_tn_128", "matmul_tt_128"}
	tiled64  = [4]string{"matmul_nn_64", "matmul_nt_64", "matmul_tn_64", "matmul_tt_64"}

	tiledBF16128 = [4]string{"matmul_mma_nn_128", "matmul_mma_nt_128", "matmul_mma_tn_128", "matmul_mma_tt_128"}
	tiledBF1664  = [4]string{"matmul_mma_nn_64", "matmul_mma_nt_64", "matmul_mma_tn_64", "matmul_mma_tt_64"}
)

// matMuls carries out a product: by the library where there is one that has an algorithm
// for it, along with a GELU of all of it, or column sums, that follow; else with the kernels here. The
// library's products of bfloat16 take along those right behind, which may read the same
// matrix.
func matMuls(x *exec, ops []tensorops.Op) (done int, err error) {
	most := 1
	if x.blas.isThere() && ops[0].Has(tensorops.FlagBF16) {
		most = limitJoined
	}
	var made roundings
	for done < len(ops) && done < most && ops[done].Kind == tensorops.KindMatMul {
		p := productOf(&ops[done])
		n, err := p.do(x, ops[done:], &made)
		if err != nil {
			return done, err
		}
		made.forget(p.C)
		if n == 2 { // with the operation behind it, whose first operand is what it writes
			made.forget(ops[done+1].T[0])
		}
		done += n
	}
	return done, nil
}

// do starts the product, with the operation behind it if that goes into it, and returns how
// many these are.
func (p product) do(x *exec, ops []tensorops.Op, made *roundings) (int, error) {
	if p.m == 0 || p.n == 0 {
		return 1, nil
	}
	if p.k > 0 {
		if err := p.plainB(x); err != nil {
			return 0, err
		}
	}
	if x.blas.isThere() && p.k > 0 {
		if done, err := p.byLibrary(x, ops, made); done > 0 || err != nil {
			x.work.count(func(is *Work) {
				is.LibraryProducts += int64(min(done, 1))
				switch {
				case done < 2:
				case ops[1].Kind == tensorops.KindGELU:
					is.LibraryGELUs++
				default:
					is.LibrarySums++
				}
			})
			return done, err
		}
		x.work.fell(p.String())
	}
	x.work.count(func(is *Work) { is.KernelProducts++ })
	return 1, p.byKernels(x)
}

func productOf(o *tensorops.Op) product {
	p := product{MatMulArgs: o.MatMul()}
	p.m, p.n, p.k = p.C.Rows(), p.C.Cols(), p.A.Cols()
	if p.TransA {
		p.k, p.form = p.A.Rows(), 2
	}
	if p.TransB {
		p.form++
	}
	return p
}

// String names the product's form.
func (p product) String() string {
	s := fmt.Sprintf("%d×%d×%d %s", p.m, p.n, p.k, []string{"NN", "NT", "TN", "TT"}[p.form])
	for _, is := range []struct {
		so   bool
		name string
	}{{p.Bias.Valid(), "bias"}, {p.Accumulate, "accumulate"}, {p.BF16, "bfloat16"}, {p.Packed.Valid(), "packed"}} {
		if is.so {
			s += " " + is.name
		}
	}
	return fmt.Sprintf("%s, strides %d, %d and %d", s, p.C.Stride(), p.A.Stride(), p.B.Stride())
}

// pack rounds B to bfloat16 for the library. Else it does nothing: the products read B
// itself, which is still what it was.
func pack(x *exec, o *tensorops.Op) error {
	a := o.Pack()
	if !x.blas.isThere() || !a.BF16 {
		return nil
	}
	return roundTo(x, address(a.Dst), a.B)
}

// byKernels computes the product with the kernels here, which read and write float32.
func (p product) byKernels(x *exec) (err error) {
	if p.A, err = x.widened(p.A); err != nil {
		return err
	}
	if p.B, err = x.widened(p.B); err != nil {
		return err
	}
	if p.Bias, err = x.widened(p.Bias); err != nil {
		return err
	}
	c := p.C
	if !isBFloat16(c) {
		return p.multiply(x)
	}
	if p.C, err = x.float32Like(c); err != nil {
		return err
	}
	if err := p.multiply(x); err != nil {
		return err
	}
	return copyTo(x, c, p.C)
}

// multiply computes the product with the kernels of matmul.cu. How it is cut, in tiles and
// in pieces of the depth that are computed apart, is for the device to be busy; it changes
// no bit.
func (p product) multiply(x *exec) error {
	if p.k == 0 {
		return p.sum(x, 0, address(p.Bias), 0, p.Accumulate)
	}
	pieces := ceil(p.k, pieceDepth)
	if pieces > 1 && p.tiles(64) < 2*x.processors {
		return p.multiplyParts(x, pieces)
	}
	args := p.args()
	args.c, args.bias, args.cStride = address(p.C), address(p.Bias), int64(p.C.Stride())
	args.accumulate, args.quadsC = number(p.Accumulate), number(quads(p.C))
	args.last = int64(p.k)
	return p.launch(x, 1, &args)
}

// multiplyParts computes pieces of the depth side by side, as many as limitParts allows,
// and adds them in order.
func (p product) multiplyParts(x *exec, pieces int) error {
	size := 4 * p.m * p.n
	most := min(pieces, max(1, limitParts/size))
	parts, err := x.scratch(most * size)
	if err != nil {
		return err
	}
	args := p.args()
	args.c, args.cStride, args.parts, args.quadsC = parts, int64(p.n), 1, number(p.n%4 == 0)
	accumulate, bias := p.Accumulate, address(p.Bias)
	for done := 0; done < pieces; done += most {
		count := min(most, pieces-done)
		args.first, args.last = int64(done)*pieceDepth, int64(min(p.k, (done+count)*pieceDepth))
		if err := p.launch(x, count, &args); err != nil {
			return err
		}
		if err := p.sum(x, parts, bias, count, accumulate); err != nil {
			return err
		}
		accumulate, bias = true, 0
	}
	return nil
}

// args are what the forms of multiplying have in common.
func (p product) args() matmulArgs {
	return matmulArgs{
		a: address(p.A), b: address(p.B),
		aStride: int64(p.A.Stride()), bStride: int64(p.B.Stride()),
		m: int32(p.m), n: int32(p.n),
		bf16:   number(p.BF16),
		quadsA: number(quads(p.A)), quadsB: number(quads(p.B)),
	}
}

// tiles is how many square tiles of a width C has.
func (p product) tiles(width int) int { return ceil(p.m, width) * ceil(p.n, width) }

// launch starts the kernel for n pieces side by side, with large tiles where there
// are enough of them.
func (p product) launch(x *exec, pieces int, args *matmulArgs) error {
	width, large, small := 128, tiled128, tiled64
	if p.BF16 && x.tensorCores {
		large, small = tiledBF16128, tiledBF1664
	}
	kernel := large[p.form]
	if p.tiles(width)*pieces < x.processors {
		width, kernel = 64, small[p.form]
	}
	return launch(x, kernel, grid{x: p.tiles(width), y: pieces, threads: matmulThreads}, args)
}

// sum adds pieces to what C starts from.
func (p product) sum(x *exec, parts, bias uint64, pieces int, accumulate bool) error {
	args := matmulSumArgs{
		c: address(p.C), parts: parts, bias: bias,
		cStride: int64(p.C.Stride()), elements: int64(p.m) * int64(p.n),
		n: int32(p.n), pieces: int32(pieces), accumulate: number(accumulate),
	}
	return launch(x, "matmul_sum", x.over(p.m*p.n), &args)
}

// quads reports whether each row of a matrix begins at a multiple of four floats, so that
// a thread may read four at once.
func quads(t tensorops.Tensor) bool { return address(t)%16 == 0 && t.Stride()%4 == 0 }

// number is a condition for a kernel.
func number(is bool) int32 {
	if is {
		return 1
	}
	return 0
}

func ceil(a, b int) int { return (a + b - 1) / b }
