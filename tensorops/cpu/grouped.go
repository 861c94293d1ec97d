package cpu

import (
	"cmp"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

// groupedOp is the products of experts in progress. The cores take units of all experts together, the largest first, so that
// neither many small experts nor a large one leaves a core idle. A sum has the bits of any product: see package gemm.
type groupedOp struct {
	whole         product // A, B and C have the numbers of all experts
	offsets       []int32
	experts       int
	parts, source int
	weights       bool // their gradients: the experts differ in k, otherwise in m
	transB        bool
	eachPacked    int // floats of an expert's packed B

	most  int // the m·n·k of a unit, about
	units []groupUnit
	first []groupUnit // the experts whose B is packed before units multiply it
}

// groupUnit is some rows and columns of the C of an expert.
type groupUnit struct {
	expert         int
	i0, i1, j0, j1 int
	packed         []float32 // B, packed before; nil: it is not
}

const (
	// unitsOfCore is the number of units that large experts are cut into for each core: with more of them the cores end together,
	// with fewer an operand is packed fewer times.
	unitsOfCore = 8
	// limitOwnRows is the number of rows up to which a core packs an expert's B strip by strip for itself. The more rows multiply
	// a strip, the less matters who packs it, and the larger is the A that has to stay in the core's cache.
	limitOwnRows = 2 * gemm.BlockM
	// leastRows and leastColumns are the sizes of a unit from which on packing the other operand again for each unit, or reading it
	// again, costs little.
	leastRows, leastColumns = 96, 128
)

// groupedMatMul multiplies the rows of each expert.
func (x *exec) groupedMatMul() error {
	a := x.op.GroupedMatMul()
	offsets := i32(a.Offsets)
	if err := tensorops.CheckSourceOffsets(offsets, a.A.Rows(), a.Sources); err != nil {
		return err
	}
	g := x.newGroup(offsets, a.Sources)
	g.transB = a.TransB
	p := &g.whole
	p.n, p.k, p.add = a.C.Cols(), a.A.Cols(), a.Accumulate
	p.a, p.b, p.c = matrixOf(a.A, false), matrixOf(a.B, a.TransB), matrixOf(a.C, false)
	if a.Bias.Valid() {
		p.bias = f32(a.Bias)
	}
	if p.packedB = x.packedOf(a.Packed); p.packedB != nil {
		g.eachPacked = len(p.packedB) / max(g.experts, 1)
	}
	return x.multiplyGroups(g)
}

// groupedWeightGrad multiplies them for the gradients of weights.
func (x *exec) groupedWeightGrad() error {
	a := x.op.GroupedWeightGrad()
	offsets := i32(a.Offsets)
	if err := tensorops.CheckSourceOffsets(offsets, a.X.Rows(), a.Sources); err != nil {
		return err
	}
	g := x.newGroup(offsets, a.Sources)
	g.weights, g.source = true, a.Source
	p := &g.whole
	p.m, p.n, p.add = a.DY.Cols(), a.X.Cols(), true
	p.a, p.b, p.c = matrixOf(a.DY, true), matrixOf(a.X, false), matrixOf(a.DWeight, false)
	return x.multiplyGroups(g)
}

// newGroup is the current operation's, with the memory of the one before.
func (x *exec) newGroup(offsets []int32, sources int) *groupedOp {
	g := &groupedOp{offsets: offsets, parts: max(sources, 1)}
	if old := x.group; old != nil {
		g.units, g.first = old.units, old.first
	}
	g.experts = (len(offsets) - 1) / g.parts
	g.whole.kernel, g.whole.vec = x.dev.kernels.gemm, x.dev.kernels.vec
	if x.op.Has(tensorops.FlagBF16) {
		g.whole.kernel = x.dev.kernels.bf16
	}
	x.group = g
	return g
}

// rows are those of an expert that count.
func (g *groupedOp) rows(e int) (from, to int) {
	at := g.offsets[e*g.parts:]
	if g.weights {
		return int(at[g.source]), int(at[g.source+1])
	}
	return int(at[0]), int(at[g.parts])
}

// of is the product of an expert.
func (g *groupedOp) of(e int) product {
	p := g.whole
	from, to := g.rows(e)
	if g.weights {
		p.k = to - from
		p.a, p.b, p.c = p.a.At(0, from), p.b.At(from, 0), p.c.At(e*p.m, 0)
	} else {
		p.m = to - from
		p.a, p.c = p.a.At(from, 0), p.c.At(from, 0)
		p.b = expertB(p.b, e, p.k, p.n, g.transB)
		if p.bias != nil {
			p.bias = p.bias[e*p.n:][:p.n]
		}
		if p.packedB != nil {
			p.packedB = p.packedB[e*g.eachPacked:][:g.eachPacked]
		}
	}
	p.half = p.c.Half != nil
	p.depth = p.kernel.Depth(p.k)
	p.k1 = p.k
	return p
}

// work is the number of products of two numbers.
func (p *product) work() int { return p.m * p.n * p.k }

// packsFirst reports whether several units multiply an expert's B, so that all cores pack it once before.
func (g *groupedOp) packsFirst(p *product) bool {
	return p.packedB == nil && p.k > 0 && p.n > 0 && (p.m > limitOwnRows || p.m > gemm.BlockM && p.work() > g.most)
}

// multiplyGroups carries out a group. The experts whose B is packed before take turns in the memory for it.
func (x *exec) multiplyGroups(g *groupedOp) error {
	total, shared := 0, 0
	for e := range g.experts {
		from, to := g.rows(e)
		total += (to - from) * g.whole.n * max(g.whole.m, g.whole.k)
	}
	g.most = total
	if threads := x.dev.cores.threads; threads > 1 {
		g.most = max(total/(unitsOfCore*threads), limitAlone)
	}
	for e := range g.experts {
		if p := g.of(e); g.packsFirst(&p) && p.lenB() <= limitShared {
			shared += p.lenB()
		}
	}
	var room []float32
	if shared > 0 {
		room = x.shared.floats(min(shared, limitShared))
	}
	used := 0
	g.first = g.first[:0]
	large := false
	for e := range g.experts {
		p := g.of(e)
		if !g.packsFirst(&p) {
			continue
		}
		n := p.lenB()
		if large = large || n > limitShared; n > limitShared {
			continue
		}
		if used+n > len(room) {
			if err := x.multiplyFirst(g, false); err != nil {
				return err
			}
			used = 0
		}
		g.first = append(g.first, groupUnit{expert: e, packed: room[used:][:n]})
		used += n
	}
	if err := x.multiplyFirst(g, true); err != nil {
		return err
	}
	for e := range g.experts {
		if p := g.of(e); large && g.packsFirst(&p) && p.lenB() > limitShared {
			if err := x.multiply(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// lenB is the number of floats of a B that is packed for its whole depth.
func (p *product) lenB() int { return p.kernel.LenB(p.k, p.n) }

// multiplyFirst packs the B of the experts in first and multiplies; with last, also all experts whose B is not packed first.
func (x *exec) multiplyFirst(g *groupedOp, last bool) error {
	g.units = g.units[:0]
	for _, u := range g.first {
		for j := 0; j < g.whole.n; j += packUnit {
			u.j0, u.j1 = j, min(j+packUnit, g.whole.n)
			g.units = append(g.units, u)
		}
	}
	if err := x.parallel(len(g.units), 1, packGroupUnits); err != nil {
		return err
	}
	g.units = g.units[:0]
	for _, u := range g.first {
		p := g.of(u.expert)
		p.packedB = u.packed
		g.cut(&p, u)
	}
	g.first = g.first[:0]
	for e := 0; last && e < g.experts; e++ {
		if p := g.of(e); !g.packsFirst(&p) {
			g.cut(&p, groupUnit{expert: e})
		}
	}
	slices.SortFunc(g.units, func(a, b groupUnit) int { return cmp.Compare(g.unitWork(b), g.unitWork(a)) })
	return x.parallel(len(g.units), 1, multiplyGroupUnits)
}

// unitWork is the m·n·k of a unit.
func (g *groupedOp) unitWork(u groupUnit) int {
	k := g.whole.k
	if g.weights {
		from, to := g.rows(u.expert)
		k = to - from
	}
	return (u.i1 - u.i0) * (u.j1 - u.j0) * k
}

// cut adds the units of an expert's product.
func (g *groupedOp) cut(p *product, u groupUnit) {
	if p.m == 0 || p.n == 0 {
		return
	}
	mr, nr := p.kernel.Strips()
	rows, columns := p.m, p.n
	switch {
	case p.k == 0:
	case p.packedB != nil && (p.m > gemm.BlockM || p.work() <= g.most):
		most := min(gemm.BlockM, max(g.most/(p.n*p.k), leastRows))
		rows = ceil(ceil(p.m, ceil(p.m, most)), mr) * mr
	default:
		columns = max(g.most/(p.m*p.k), leastColumns)
		if _, ok := p.kernel.(stripKernel); !ok {
			columns = min(columns, gemm.BlockN)
		}
		columns = ceil(ceil(p.n, ceil(p.n, columns)), nr) * nr
	}
	for i := 0; i < p.m; i += rows {
		for j := 0; j < p.n; j += columns {
			u.i0, u.i1, u.j0, u.j1 = i, min(i+rows, p.m), j, min(j+columns, p.n)
			g.units = append(g.units, u)
		}
	}
}

// packExperts takes a range of the parts of the matrices of experts: see packAll.
func packExperts(x *exec, lo, hi int) {
	a, parts := x.op.Pack(), x.product.packParts()
	each := len(x.product.packed) / a.Experts
	for i := lo; i < hi; i++ {
		p, e := x.product, i/parts
		p.b, p.packed = expertB(p.b, e, p.k, p.n, a.TransB), p.packed[e*each:]
		p.packPart(i % parts)
	}
}

// expertB is the B of an expert, of those that lie one after another as they are stored.
func expertB(b gemm.Matrix, e, k, n int, transposed bool) gemm.Matrix {
	if transposed {
		return b.At(0, e*n)
	}
	return b.At(e*k, 0)
}

// packGroupUnits takes a range of the units that are packed first.
func packGroupUnits(x *exec, lo, hi int) {
	for _, u := range x.group.units[lo:hi] {
		p := x.group.of(u.expert)
		p.packB(u.packed, u.j0, u.j1)
	}
}

// packB packs some columns of B, for the whole depth, where all of B has its place in dst.
func (p *product) packB(dst []float32, j0, j1 int) {
	kn := p.kernel
	for k0 := 0; k0 < p.k; k0 += p.depth {
		kk := min(p.depth, p.k-k0)
		kn.PackB(dst[kn.LenB(k0, p.n)+kn.LenB(kk, j0):], p.b.At(k0, j0), kk, j1-j0)
	}
}

// multiplyGroupUnits takes a range of units.
func multiplyGroupUnits(x *exec, lo, hi int) {
	for _, u := range x.group.units[lo:hi] {
		p := x.group.of(u.expert)
		p.unit(x, u)
	}
}

// unit carries out a unit on the calling core.
func (p *product) unit(x *exec, u groupUnit) {
	if p.k == 0 {
		p.empty(p.vec)
		return
	}
	if u.packed != nil {
		p.packedB = u.packed
	}
	switch {
	case p.packedB != nil && u.j0 == 0 && u.j1 == p.n:
		p.packed = p.packedB
		p.ownRows(x, u.i0, u.i1)
	case p.packedB != nil:
		p.shareA, p.packed = true, p.packA(x)
		p.columns(x, u.j0, u.j1)
	case p.work() <= limitAlone && p.direct(x):
	default:
		p.ownColumns(x, u.j0, u.j1)
	}
}

// ownRows computes rows i0 to i1 with a B that is packed.
func (p *product) ownRows(x *exec, i0, i1 int) {
	if r, ok := p.kernel.(rowsReader); ok && r.ReadsRows(p.a, i1-i0, p.k) {
		p.plain = r
	}
	p.deep = !p.half && p.plain == nil && p.k <= limitDepth
	for i := i0; i < i1; i += gemm.BlockM {
		p.rows(x, i, min(i+gemm.BlockM, i1))
	}
}

// ownColumns computes columns j0 to j1 with a B that the core packs for itself.
func (p *product) ownColumns(x *exec, j0, j1 int) {
	p.b, p.c, p.n = p.b.At(0, j0), p.c.At(0, j0), j1-j0
	if p.bias != nil {
		p.bias = p.bias[j0:j1]
	}
	p.shareA = true
	if p.strips = p.stripKernel(); p.strips != nil {
		p.packed = p.packA(x)
		_, p.panel = p.kernel.Strips()
		p.byStrips(x, 0, ceil(p.n, p.panel))
		return
	}
	p.shareA = false
	p.packed = x.own.floats(p.lenB())
	p.packB(p.packed, 0, p.n)
	p.ownRows(x, 0, p.m)
}

// packA packs all of A for the whole depth, for the calling core.
func (p *product) packA(x *exec) []float32 {
	kn := p.kernel
	packed := x.own.floats(kn.LenA(p.m, p.k))
	for k0 := 0; k0 < p.k; k0 += p.depth {
		kn.PackA(packed[kn.LenA(p.m, k0):], p.a.At(0, k0), p.m, min(p.depth, p.k-k0))
	}
	return packed
}
