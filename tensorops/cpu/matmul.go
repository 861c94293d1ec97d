package cpu

import (
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// matrixOf views a tensor, transposed where asked.
func matrixOf(t tensorops.Tensor, transposed bool) gemm.Matrix {
	m := gemm.Matrix{Row: t.Stride(), Col: 1}
	switch {
	case t.DType().Quantized():
		m.Coded, m.First = coded(t), t.Offset()
	case t.DType() == tensorops.BFloat16:
		m.Half = tensorops.Elements[uint16](t)
	default:
		m.Data = f32(t)
	}
	if transposed {
		return m.T()
	}
	return m
}

// product is C = A·B, or C += A·B, in progress: A is m×k, B k×n, C m×n with
// contiguous rows.
//
// A C of bfloat16 is rounded once. So its sums are made beside it, in float32: a block of them
// for the whole depth, or, where there are several slabs, all of C.
//
// Each operand is packed once. The smaller one is packed whole by all cores
// together; then cores take panels of the larger one, pack them for themselves,
// and multiply them with all of the smaller one. The larger the depth, the more
// memory that takes, so it is done slab by slab of the depth. An A that the kernel
// reads where it lies is not packed. What follows a product goes over each block of C once its sums are complete.
// None of this touches a sum: see package gemm.
type product struct {
	kernel  gemm.Multiplier
	vec     *vec.Kernels
	a, b, c gemm.Matrix
	m, n, k int
	depth   int // of a block: but for the last one
	add     bool
	bias    []float32      // added to every row; nil: none
	packedB []float32      // all of B; nil: to be packed
	half    bool           // C is bfloat16 and gets its numbers block by block
	then    []tensorops.Op // that follow: see followers
	plain   rowsReader     // multiplies A as it lies; nil: it is packed

	strips stripKernel // B is packed strip by strip; nil: it is not

	symmetric bool // only what is on and below the diagonal is computed; then mirror

	shareA bool // A is the smaller operand
	deep   bool // panels of A are packed for the whole depth
	panel  int  // rows of A, or columns of B, that a core takes at a time
	k0, k1 int  // the slab
	packed []float32
}

// rowsReader is a kernel that multiplies some operands without packing them.
type rowsReader interface {
	ReadsRows(a gemm.Matrix, m, k int) bool
	BlockRows(c gemm.Matrix, m, n, k int, a gemm.Matrix, b []float32, add bool)
}

const (
	// limitShared is the number of floats of the shared operand's slab.
	limitShared = 4 << 20
	// limitDeep is the number of rows or columns in a panel that is as deep as its slab.
	limitDeep = 256
	// limitDepth is the depth up to which a core's panel of A is packed for all of it: a panel of
	// BlockM rows is then half of a core's own cache.
	limitDepth = 1 << 10
	// limitSums is the number of sums that are kept beside a panel of a C of bfloat16.
	limitSums = 128 << 10
	// limitAlone is the m·n·k up to which one core is faster alone: some ten
	// microseconds.
	limitAlone = 1 << 19
	// packUnit is the number of rows or columns of the shared operand that a
	// core packs at a time.
	packUnit = 96
)

// matMul carries out the current operation, and those that follow it.
func (x *exec) matMul(then []tensorops.Op) error {
	a := x.op.MatMul()
	p := product{
		kernel: x.dev.kernels.gemm,
		vec:    x.dev.kernels.vec,
		a:      matrixOf(a.A, a.TransA),
		b:      matrixOf(a.B, a.TransB),
		c:      matrixOf(a.C, false),
		m:      a.C.Rows(), n: a.C.Cols(), k: a.A.Cols(),
		add:  a.Accumulate,
		bias: x.get(x.values(0, a.Bias), 0, a.Bias.Len()),
		then: then,
	}
	if a.TransA {
		p.k = a.A.Rows()
	}
	if a.BF16 {
		p.kernel = x.dev.kernels.bf16
	}
	p.packedB = x.packedOf(a.Packed)
	if p.symmetric = a.Symmetric; p.symmetric {
		return x.multiplySymmetric(p)
	}
	return x.multiply(p)
}

// packedOf views a packed operand; nil if there is none, or none that this path reads: one of
// bfloat16 has no room for the float32 that some paths multiply in its place.
func (x *exec) packedOf(t tensorops.Tensor) []float32 {
	switch {
	case !t.Valid():
		return nil
	case t.DType() == tensorops.Float32:
		return f32(t)
	case x.dev.kernels.fastBF16:
		return words(t)
	}
	return nil
}

// words views the memory of pairs of bfloat16 as that of as many float32.
func words(t tensorops.Tensor) []float32 {
	return tensorops.HostNumbers[float32](tensorops.Bytes(t))
}

// packAll carries out a Pack: what multiply would make of B, for all of its depth.
func (x *exec) packAll() error {
	a := x.op.Pack()
	p := product{kernel: x.dev.kernels.gemm, b: matrixOf(a.B, a.TransB), packed: x.packedOf(a.Dst)}
	if p.packed == nil {
		return nil
	}
	p.k, p.n = a.Size()
	if p.k == 0 || p.n == 0 {
		return nil
	}
	if a.BF16 {
		p.kernel = x.dev.kernels.bf16
	}
	p.depth = p.kernel.Depth(p.k)
	p.k1 = p.k
	x.product = p
	if a.Experts > 0 {
		return x.parallel(a.Experts*p.packParts(), 1, packExperts)
	}
	return x.parallel(p.packParts(), 1, packShared)
}

// packParts is the number of parts in which all of B is packed.
func (p *product) packParts() int { return ceil(p.k, p.depth) * ceil(p.n, packUnit) }

// multiply splits a product over the cores.
func (x *exec) multiply(p product) error {
	if p.m == 0 || p.n == 0 {
		return nil
	}
	if p.k == 0 {
		p.empty(x.dev.kernels.vec)
		return x.after(p.then)
	}
	p.half = p.c.Half != nil
	threads := x.dev.cores.threads
	p.shareA = p.m <= p.n
	if p.packedB != nil && !p.half && p.m >= threads*gemm.BlockM {
		p.shareA = false // then all that is packed is a panel of A at a time, which stays in the cache
	}
	mr, nr := p.kernel.Strips()
	small, large, unit, most := p.n, p.m, mr, gemm.BlockM
	if p.shareA {
		small, large, unit, most = p.m, p.n, nr, gemm.BlockN
	}
	if p.m*p.n*p.k <= limitAlone {
		threads = 1
		if p.direct(x) {
			return x.after(p.then)
		}
	}
	p.depth = p.kernel.Depth(p.k)
	slab := max(1, limitShared/small/p.depth) * p.depth
	if r, ok := p.kernel.(rowsReader); ok && r.ReadsRows(p.a, p.m, p.k) {
		if p.plain = r; p.shareA { // then nothing is packed that is shared
			slab = p.k
		}
	}
	if p.half && slab < p.k {
		return x.multiplyBeside(p)
	}
	if p.half && p.k > p.depth {
		most = min(most, limitDeep)
	}
	p.panel = panelSize(large, unit, most, threads)
	if p.symmetric {
		p.panel = min(p.panel, symmetricPanel(large, unit))
	}
	p.strips = p.stripKernel()
	if _, pairs := p.strips.(*gemm.PairKernel); pairs {
		p.panel = nr // there are few depths, and the sums of one strip keep to a core's own cache
	}
	if p.packedB != nil && !p.half && !p.shareA && p.plain == nil && p.k <= limitDepth {
		p.deep, slab = true, p.k
		if p.m >= threads*gemm.BlockM { // large panels, as many for each core
			panels := ceil(ceil(p.m, most), threads) * threads
			p.panel = ceil(ceil(p.m, panels), unit) * unit
		}
	}
	for p.k0 = 0; p.k0 < p.k; p.k0 = p.k1 {
		p.k1 = min(p.k0+slab, p.k)
		switch {
		case p.plain != nil && p.shareA:
			x.product = p
		case p.packedB != nil && !p.shareA:
			p.packed = p.packedB[p.kernel.LenB(p.k0, p.n):]
			x.product = p
		default:
			p.packed = x.shared.floats(p.lenShared(small, p.k1-p.k0))
			x.product = p
			units := ceil(p.k1-p.k0, p.depth) * ceil(small, packUnit)
			if err := x.parallel(units, ceil(units, 4*threads), packShared); err != nil {
				return err
			}
		}
		if err := x.parallel(ceil(large, p.panel), 1, multiplyPanels); err != nil {
			return err
		}
	}
	return nil
}

// multiplyBeside makes a product whose C is bfloat16 in float32, and rounds it.
func (x *exec) multiplyBeside(p product) error {
	sums := p
	sums.c = gemm.Matrix{Data: x.sums.floats(p.m * p.n), Row: p.n, Col: 1}
	if err := x.multiply(sums); err != nil {
		return err
	}
	sums.a = p.c // where they go
	x.product = sums
	return x.parallel(p.m, rowGrain(p.n), roundRows)
}

// roundRows takes a range of the rows of multiplyBeside.
func roundRows(x *exec, lo, hi int) {
	p := &x.product
	for r := lo; r < hi; r++ {
		p.vec.ToBF16(p.a.Half[r*p.a.Row:][:p.n], p.c.Data[r*p.c.Row:][:p.n])
	}
}

// direct carries out the product without packing, where that can be.
func (p *product) direct(x *exec) bool {
	kn, ok := p.kernel.(*gemm.Kernel)
	if !ok || p.half || p.packedB != nil || p.a.Half != nil || p.b.Data == nil ||
		!kn.Direct(p.c, p.a, p.b, p.m, p.n, p.k, p.add, x.packed.floats) {
		return false
	}
	if p.bias != nil {
		p.addBias(p.c, p.m, p.n, 0)
	}
	return true
}

// panelSize divides size into panels of whole units, of at most the given size:
// a few for each core, if they don't become tiny.
func panelSize(size, unit, most, threads int) int {
	panels := ceil(size, most)
	if threads > 1 {
		panels = max(panels, min(4*threads, ceil(size, 3*unit)))
	}
	return ceil(ceil(size, panels), unit) * unit
}

func ceil(a, b int) int { return (a + b - 1) / b }

// lenShared is the packed size of the shared operand: width rows or columns of
// the given depth.
func (p *product) lenShared(width, depth int) int {
	if p.shareA {
		return p.kernel.LenA(width, depth)
	}
	return p.kernel.LenB(depth, width)
}

// packShared takes a range of (depth, rows or columns) of the shared operand.
func packShared(x *exec, lo, hi int) {
	for i := lo; i < hi; i++ {
		x.product.packPart(i)
	}
}

// packPart packs a part of the shared operand.
func (p *product) packPart(i int) {
	width := p.n
	if p.shareA {
		width = p.m
	}
	across := ceil(width, packUnit)
	k0, j := p.k0+i/across*p.depth, i%across*packUnit
	kk, w := min(p.depth, p.k1-k0), min(packUnit, width-j)
	dst := p.packed[p.lenShared(width, k0-p.k0)+p.lenShared(j, kk):]
	if p.shareA {
		p.kernel.PackA(dst, p.a.At(j, k0), w, kk)
	} else {
		p.kernel.PackB(dst, p.b.At(k0, j), kk, w)
	}
}

// multiplyPanels takes a range of panels of the larger operand.
func multiplyPanels(x *exec, lo, hi int) {
	p := &x.product
	if p.strips != nil {
		p.byStrips(x, lo, hi)
		return
	}
	for i := lo; i < hi; i++ {
		if p.shareA {
			p.columns(x, i*p.panel, min(p.n, (i+1)*p.panel))
		} else {
			p.rows(x, i*p.panel, min(p.m, (i+1)*p.panel))
		}
	}
}

// columns computes columns j0 to j1 of C with A shared.
func (p *product) columns(x *exec, j0, j1 int) {
	if p.half {
		p.halfColumns(x, j0, j1)
		return
	}
	kn, n, top := p.kernel, j1-j0, p.topRow(j0)
	for k0 := p.k0; k0 < p.k1; k0 += p.depth {
		kk := min(p.depth, p.k1-k0)
		var pb []float32
		if p.packedB != nil {
			pb = p.packedB[kn.LenB(k0, p.n)+kn.LenB(kk, j0):]
		} else {
			pb = x.packed.floats(kn.LenB(kk, n))
			kn.PackB(pb, p.b.At(k0, j0), kk, n)
		}
		for i := top; i < p.m; i += gemm.BlockM {
			p.block(x, i, j0, min(gemm.BlockM, p.m-i), n, k0, kk, p.sharedA(i, k0, kk), pb)
		}
	}
}

// rows computes rows i0 to i1 of C with B shared.
func (p *product) rows(x *exec, i0, i1 int) {
	if p.half {
		p.halfRows(x, i0, i1)
		return
	}
	if p.deep {
		p.deepRows(x, i0, i1-i0)
		return
	}
	kn, m := p.kernel, i1-i0
	for k0 := p.k0; k0 < p.k1; k0 += p.depth {
		kk := min(p.depth, p.k1-k0)
		var pa []float32
		if p.plain == nil {
			pa = x.packed.floats(kn.LenA(m, kk))
			kn.PackA(pa, p.a.At(i0, k0), m, kk)
		}
		pb := p.packed[kn.LenB(k0-p.k0, p.n):]
		for j := 0; j < p.n; j += gemm.BlockN {
			p.block(x, i0, j, m, min(gemm.BlockN, p.n-j), k0, kk, pa, pb[kn.LenB(kk, j):])
		}
	}
}

// deepRows is rows with the panel packed for the whole depth: each block of C is complete before the
// next, so that its sums stay in the cache.
func (p *product) deepRows(x *exec, i, m int) {
	kn := p.kernel
	panel := p.packPanelA(x, i, m)
	for j := 0; j < p.n; j += gemm.BlockN {
		n := min(gemm.BlockN, p.n-j)
		for k0 := 0; k0 < p.k; k0 += p.depth {
			kk := min(p.depth, p.k-k0)
			p.block(x, i, j, m, n, k0, kk, panel[kn.LenA(m, k0):], p.packed[kn.LenB(k0, p.n)+kn.LenB(kk, j):])
		}
	}
}

// packPanelA packs m rows of A for the whole depth.
func (p *product) packPanelA(x *exec, i, m int) []float32 {
	kn := p.kernel
	panel := x.packed.floats(ceil(p.k, p.depth) * kn.LenA(m, p.depth))
	for k0 := 0; k0 < p.k; k0 += p.depth {
		kn.PackA(panel[kn.LenA(m, k0):], p.a.At(i, k0), m, min(p.depth, p.k-k0))
	}
	return panel
}

// sharedA is where the shared A has the rows from i on in the block of the depth from k0 on; nil: it is not packed.
func (p *product) sharedA(i, k0, kk int) []float32 {
	if p.plain != nil {
		return nil
	}
	return p.packed[p.kernel.LenA(p.m, k0-p.k0)+p.kernel.LenA(i, kk):]
}

// multiplyBlock has the kernel compute m × n sums of the rows of A from i on, at the depth from k0 on.
func (p *product) multiplyBlock(sums gemm.Matrix, i, k0, m, n, kk int, pa, pb []float32, add bool) {
	if p.plain != nil {
		p.plain.BlockRows(sums, m, n, kk, p.a.At(i, k0), pb, add)
		return
	}
	p.kernel.Block(sums, m, n, kk, pa, pb, add)
}

// block computes one block of C, and what follows the product once its sums are
// complete, while it is in the cache.
func (p *product) block(x *exec, i, j, m, n, k0, kk int, pa, pb []float32) {
	c := p.c.At(i, j)
	p.multiplyBlock(c, i, k0, m, n, kk, pa, pb, p.add || k0 > 0)
	if k0+kk < p.k {
		return
	}
	if p.bias != nil {
		p.addBias(c, m, n, j)
	}
	p.follow(x, i, j, m, n)
}

// halfColumns is columns for a C of bfloat16: the panel of B is packed for the whole depth, so
// that each block of C is complete before the next.
func (p *product) halfColumns(x *exec, j0, j1 int) {
	kn, n := p.kernel, j1-j0
	if p.packedB == nil && p.k > p.depth && p.m*n <= limitSums {
		p.shallowColumns(x, j0, n)
		return
	}
	var panel []float32
	if p.packedB == nil {
		panel = x.packed.floats(ceil(p.k, p.depth) * kn.LenB(p.depth, n))
		for k0 := 0; k0 < p.k; k0 += p.depth {
			kn.PackB(panel[kn.LenB(k0, n):], p.b.At(k0, j0), min(p.depth, p.k-k0), n)
		}
	}
	for i := 0; i < p.m; i += gemm.BlockM {
		m := min(gemm.BlockM, p.m-i)
		sums := p.beside(x, m, n)
		for k0 := 0; k0 < p.k; k0 += p.depth {
			kk := min(p.depth, p.k-k0)
			var pb []float32
			if p.packedB != nil {
				pb = p.packedB[kn.LenB(k0, p.n)+kn.LenB(kk, j0):]
			} else {
				pb = panel[kn.LenB(k0, n):]
			}
			p.halfBlock(sums, i, j0, m, n, k0, kk, p.sharedA(i, k0, kk), pb)
		}
	}
}

// shallowColumns is halfColumns with room for all sums of the panel: what is packed of B is multiplied
// while it is in the cache.
func (p *product) shallowColumns(x *exec, j0, n int) {
	kn := p.kernel
	sums := p.beside(x, p.m, n)
	for k0 := 0; k0 < p.k; k0 += p.depth {
		kk := min(p.depth, p.k-k0)
		pb := x.packed.floats(kn.LenB(kk, n))
		kn.PackB(pb, p.b.At(k0, j0), kk, n)
		for i := 0; i < p.m; i += gemm.BlockM {
			p.halfBlock(sums.At(i, 0), i, j0, min(gemm.BlockM, p.m-i), n, k0, kk, p.sharedA(i, k0, kk), pb)
		}
	}
}

// halfRows is rows for a C of bfloat16, as halfColumns.
func (p *product) halfRows(x *exec, i0, i1 int) {
	kn, m := p.kernel, i1-i0
	var panel []float32
	if p.plain == nil {
		panel = p.packPanelA(x, i0, m)
	}
	for j := 0; j < p.n; j += gemm.BlockN {
		n := min(gemm.BlockN, p.n-j)
		sums := p.beside(x, m, n)
		for k0 := 0; k0 < p.k; k0 += p.depth {
			kk := min(p.depth, p.k-k0)
			var pa []float32
			if panel != nil {
				pa = panel[kn.LenA(m, k0):]
			}
			p.halfBlock(sums, i0, j, m, n, k0, kk, pa, p.packed[kn.LenB(k0, p.n)+kn.LenB(kk, j):])
		}
	}
}

// beside is a core's room for a block of sums.
func (p *product) beside(x *exec, m, n int) gemm.Matrix {
	return gemm.Matrix{Data: x.block.floats(m * n), Row: n, Col: 1}
}

// halfBlock computes the part of a block of sums that the depth from k0 on adds, and stores it in a C of bfloat16 once they are complete.
func (p *product) halfBlock(sums gemm.Matrix, i, j, m, n, k0, kk int, pa, pb []float32) {
	last := k0+kk == p.k
	if kn, ok := p.kernel.(*gemm.PairKernel); ok && last {
		kn.Multiply(gemm.Block{M: m, N: n, K: kk, A: kn.PackedA(pa, kk), B: kn.PackedB(pb, kk), C: sums, Add: k0 > 0, Out: p.out(i, j)})
		return
	}
	p.multiplyBlock(sums, i, k0, m, n, kk, pa, pb, k0 > 0)
	if last {
		p.round(sums, i, j, m, n)
	}
}

// out is a C of bfloat16 from row i and column j on, with the bias.
func (p *product) out(i, j int) gemm.Output {
	o := gemm.Output{Data: p.c.Half[i*p.c.Row+j:], Row: p.c.Row}
	if p.bias != nil {
		o.Bias = p.bias[j:]
	}
	return o
}

// round stores a block of complete sums in a C of bfloat16.
func (p *product) round(sums gemm.Matrix, i, j, m, n int) {
	for r := range m {
		row := sums.Data[r*sums.Row:][:n]
		if p.bias != nil {
			p.vec.Add(row, row, p.bias[j:])
		}
		p.vec.ToBF16(p.c.Half[(i+r)*p.c.Row+j:][:n], row)
	}
}

func (p *product) addBias(c gemm.Matrix, m, n, j int) {
	for r := range m {
		row := c.Data[r*c.Row:][:n]
		p.vec.Add(row, row, p.bias[j:])
	}
}

// empty is the product of depth 0.
func (p *product) empty(k *vec.Kernels) {
	if p.c.Half != nil {
		row := make([]float32, p.n)
		copy(row, p.bias)
		for r := range p.m {
			k.ToBF16(p.c.Half[r*p.c.Row:][:p.n], row)
		}
		return
	}
	for r := range p.m {
		if !p.add {
			clear(p.c.Data[r*p.c.Row:][:p.n])
		}
	}
	if p.bias != nil {
		p.addBias(p.c, p.m, p.n, 0)
	}
}
