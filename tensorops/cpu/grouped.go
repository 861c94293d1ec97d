package cpu

import (
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// limitOneExpert is the m·n·k up to which an expert's product is one core's, while the other cores take other experts. A
// larger one is split over all cores: some hundred microseconds are worth that.
const limitOneExpert = 1 << 23

// groupedMatMul multiplies the rows of each expert. A sum has the bits of any product, whatever the number of rows and
// of cores: see product.
func (x *exec) groupedMatMul() error {
	a := x.op.GroupedMatMul()
	return x.grouped(i32(a.Offsets), a.A.Rows(), a.Sources, groupedRanges)
}

// groupedWeightGrad does the same for gradients of weights.
func (x *exec) groupedWeightGrad() error {
	a := x.op.GroupedWeightGrad()
	return x.grouped(i32(a.Offsets), a.X.Rows(), a.Sources, groupedRanges)
}

// grouped carries out the products of small experts side by side, and then those of large ones one after another.
func (x *exec) grouped(offsets []int32, rows, sources int, small rangeFunc) error {
	if err := tensorops.CheckSourceOffsets(offsets, rows, sources); err != nil {
		return err
	}
	experts := (len(offsets) - 1) / max(sources, 1)
	if err := x.parallel(experts, 1, small); err != nil {
		return err
	}
	for e := range experts {
		if p := x.expertProduct(e); p.work() > limitOneExpert {
			if err := x.multiply(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// groupedRanges takes the small ones of a range of experts.
func groupedRanges(x *exec, lo, hi int) {
	for e := lo; e < hi; e++ {
		if p := x.expertProduct(e); p.work() <= limitOneExpert {
			p.alone(x)
		}
	}
}

// expertProduct is an expert's product in the current operation.
func (x *exec) expertProduct(e int) product {
	p := product{kernel: x.dev.kernels.gemm, vec: x.dev.kernels.vec}
	if x.op.Has(tensorops.FlagBF16) {
		p.kernel = x.dev.kernels.bf16
	}
	if x.op.Kind == tensorops.KindGroupedWeightGrad {
		a := x.op.GroupedWeightGrad()
		offsets := i32(a.Offsets)[e*max(a.Sources, 1)+a.Source:]
		from, to := int(offsets[0]), int(offsets[1])
		p.m, p.n, p.k, p.add = a.DY.Cols(), a.X.Cols(), to-from, true
		p.a, p.b = matrixOf(a.DY.RowRange(from, to), true), matrixOf(a.X.RowRange(from, to), false)
		p.c = matrixOf(a.DWeight.RowRange(e*p.m, (e+1)*p.m), false)
		return p
	}
	a := x.op.GroupedMatMul()
	offsets, parts := i32(a.Offsets), max(a.Sources, 1)
	from, to := int(offsets[e*parts]), int(offsets[(e+1)*parts])
	p.m, p.n, p.k, p.add = to-from, a.C.Cols(), a.A.Cols(), a.Accumulate
	each := p.k // rows of an expert's matrix
	if a.TransB {
		each = p.n
	}
	p.a, p.c = matrixOf(a.A.RowRange(from, to), false), matrixOf(a.C.RowRange(from, to), false)
	p.b = matrixOf(a.B.RowRange(e*each, (e+1)*each), a.TransB)
	if a.Bias.Valid() {
		p.bias = f32(a.Bias)[e*p.n:][:p.n]
	}
	return p
}

// work is the number of products of two numbers.
func (p *product) work() int { return p.m * p.n * p.k }

// alone carries out a product on the calling core.
func (p *product) alone(x *exec) {
	switch {
	case p.m == 0 || p.n == 0:
		return
	case p.k == 0:
		if !p.add {
			p.empty(p.vec)
		}
		return
	}
	p.half = p.c.Half != nil
	if p.work() <= limitAlone && p.direct(x) {
		return
	}
	kn := p.kernel
	p.depth = kn.Depth(p.k)
	packedA := p.packPanelA(x, 0, p.m)
	packedB := x.shared.floats(kn.LenB(p.depth, min(gemm.BlockN, p.n)))
	for j := 0; j < p.n; j += gemm.BlockN {
		n := min(gemm.BlockN, p.n-j)
		sums := p.c
		if p.half {
			sums = p.beside(x, p.m, n)
		} else {
			sums = sums.At(0, j)
		}
		for k0 := 0; k0 < p.k; k0 += p.depth {
			kk := min(p.depth, p.k-k0)
			kn.PackB(packedB, p.b.At(k0, j), kk, n)
			for i := 0; i < p.m; i += gemm.BlockM {
				m := min(gemm.BlockM, p.m-i)
				kn.Block(sums.At(i, 0), m, n, kk, packedA[kn.LenA(p.m, k0)+kn.LenA(i, kk):], packedB, p.add && !p.half || k0 > 0)
			}
		}
		switch {
		case p.half:
			p.round(sums, 0, j, p.m, n)
		case p.bias != nil:
			p.addBias(sums, p.m, n, j)
		}
	}
}
