package cpu

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// limitStrips bounds the bytes of the shared A, at one depth, that every strip of B is multiplied with: it comes from
// the last cache for each of them.
const limitStrips = 4 << 20

// stripKernel multiplies while the memory is fetched from which the next strip of B is packed.
type stripKernel interface {
	gemm.Multiplier
	PackedA(data []float32, depth int) gemm.Operand
	PackedB(data []float32, depth int) gemm.Operand
	Fetches() bool
	Multiply(b gemm.Block)
}

// stripKernel is the kernel of a product with A shared of which B is packed strip by strip. Nil: it is not made so.
func (p *product) stripKernel() stripKernel {
	kn, ok := p.kernel.(stripKernel)
	if !ok || !kn.Fetches() || !p.shareA || p.packedB != nil || len(p.then) > 0 || 4*kn.LenA(p.m, min(p.depth, p.k)) > limitStrips {
		return nil
	}
	if _, pairs := kn.(*gemm.PairKernel); p.half && !pairs {
		return nil
	}
	return kn
}

// strip is some columns of B at some depth.
type strip struct{ k0, depth, j, n int }

// byStrips computes a range of the panels of C.
func (p *product) byStrips(x *exec, lo, hi int) {
	kn := p.strips
	_, nr := kn.Strips()
	packed := x.packed.floats(kn.LenB(p.depth, nr))
	var sums gemm.Matrix
	if p.half && p.k > p.depth {
		sums = p.beside(x, p.m, p.panel)
	}
	for i := lo; i < hi; i++ {
		j0, j1 := i*p.panel, min(p.n, (i+1)*p.panel)
		after := j1
		if i+1 == hi { // the cores take panels in turns
			after = (i + x.dev.cores.threads) * p.panel
		}
		if !p.half {
			sums = p.c.At(0, j0)
		}
		for s := p.strip(p.k0, j0, nr); s.depth > 0; {
			kn.PackB(packed, p.b.At(s.k0, s.j), s.depth, s.n)
			top := p.topRow(s.j)
			b := gemm.Block{
				M: p.m - top, N: s.n, K: s.depth,
				A: kn.PackedA(p.sharedA(top, s.k0, s.depth), s.depth), B: kn.PackedB(packed, s.depth),
				Add: s.k0 > 0 || p.add && !p.half,
			}
			if sums.Data != nil {
				b.C = sums.At(top, s.j-j0)
			}
			last := s.k0+s.depth == p.k
			if last && p.half {
				b.Out = p.out(0, s.j)
			}
			next := p.strip(s.k0, s.j+nr, nr)
			if next.j >= j1 {
				next = p.strip(s.k0+p.depth, j0, nr)
			}
			soon := next
			if soon.depth <= 0 {
				soon = p.strip(p.k0, after, nr)
			}
			if soon.n > 0 {
				b.Next = gemm.MemoryB(p.b.At(soon.k0, soon.j), soon.depth, soon.n)
			}
			kn.Multiply(b)
			if last && !p.half && p.bias != nil {
				p.addBias(b.C, p.m, s.n, s.j)
			}
			s = next
		}
	}
}

// strip is the one from column j on, at the depth from k0 on: of no depth behind the last of those, of no columns behind B.
func (p *product) strip(k0, j, nr int) strip {
	return strip{k0, min(p.depth, p.k1-k0), j, min(nr, p.n-j)}
}
