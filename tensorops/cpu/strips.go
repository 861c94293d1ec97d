package cpu

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// limitStrips bounds the bytes of the shared A that every strip of B is multiplied with: it comes from
// the last cache for each of them.
const limitStrips = 4 << 20

// byStrips is the kernel of a product with A shared of which B is packed strip by strip: what the next one is
// packed from is fetched while this one is multiplied. Nil: it is not made so.
func (p *product) byStrips() *gemm.PairKernel {
	kn, ok := p.kernel.(*gemm.PairKernel)
	if !ok || p.packedB != nil || len(p.then) > 0 || 4*kn.LenA(p.m, min(p.depth, p.k)) > limitStrips {
		return nil
	}
	return kn
}

// strip is some columns of B at some depth.
type strip struct{ k0, depth, j, n int }

// stripColumns computes columns j0 to j1 of C by strips of B.
func (p *product) stripColumns(x *exec, kn *gemm.PairKernel, j0, j1 int) {
	var sums gemm.Matrix
	switch {
	case !p.half:
		sums = p.c.At(0, j0)
	case p.k > p.depth:
		sums = p.beside(x, p.m, j1-j0)
	}
	_, nr := kn.Strips()
	at := func(k0, j int) strip { return strip{k0, min(p.depth, p.k1-k0), j, min(nr, j1-j)} }
	packed := x.packed.floats(kn.LenB(p.depth, nr))
	for s := at(p.k0, j0); s.depth > 0; {
		kn.PackB(packed, p.b.At(s.k0, s.j), s.depth, s.n)
		b := gemm.PairBlock{
			M: p.m, N: s.n, K: s.depth,
			A: kn.PackedA(p.sharedA(0, s.k0, s.depth), s.depth), B: kn.PackedB(packed, s.depth),
			Add: s.k0 > 0 || p.add && !p.half,
		}
		if sums.Data != nil {
			b.C = sums.At(0, s.j-j0)
		}
		last := s.k0+s.depth == p.k
		if last && p.half {
			b.Out = p.out(0, s.j)
		}
		next := at(s.k0, s.j+nr)
		if next.n <= 0 {
			next = at(s.k0+p.depth, j0)
		}
		if next.depth > 0 {
			b.Next = kn.NextB(p.b.At(next.k0, next.j), next.depth, next.n)
		}
		kn.Multiply(b)
		if last && !p.half && p.bias != nil {
			p.addBias(b.C, p.m, s.n, s.j)
		}
		s = next
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
