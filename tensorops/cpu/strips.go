package cpu

import "github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"

// limitStrips bounds the bytes of the shared A that every strip of B is multiplied with: it comes from
// the last cache for each of them.
const limitStrips = 4 << 20

// stripKernel is the kernel of a product with A shared of which B is packed strip by strip: what the next one is
// packed from is fetched while this one is multiplied. Nil: it is not made so.
func (p *product) stripKernel() *gemm.PairKernel {
	kn, ok := p.kernel.(*gemm.PairKernel)
	if !ok || !p.shareA || p.packedB != nil || len(p.then) > 0 || 4*kn.LenA(p.m, min(p.depth, p.k)) > limitStrips {
		return nil
	}
	return kn
}

// strip is some columns of B at some depth.
type strip struct{ k0, depth, j, n int }

// byStrips computes a range of the strips of C.
func (p *product) byStrips(x *exec, lo, hi int) {
	kn, nr := p.strips, p.panel
	at := func(k0, i int) strip {
		return strip{k0, min(p.depth, p.k1-k0), i * nr, min(nr, p.n-i*nr)}
	}
	packed := x.packed.floats(kn.LenB(p.depth, nr))
	var sums gemm.Matrix
	if p.half && p.k > p.depth {
		sums = p.beside(x, p.m, nr)
	}
	for i := lo; i < hi; i++ {
		if !p.half {
			sums = p.c.At(0, i*nr)
		}
		for k0 := p.k0; k0 < p.k1; k0 += p.depth {
			s, next := at(k0, i), at(k0+p.depth, i)
			if next.depth <= 0 {
				if next = at(p.k0, i+1); i+1 == hi { // the cores take them in turns
					next = at(p.k0, i+x.dev.cores.threads)
				}
			}
			kn.PackB(packed, p.b.At(s.k0, s.j), s.depth, s.n)
			b := gemm.PairBlock{
				M: p.m, N: s.n, K: s.depth,
				A: kn.PackedA(p.sharedA(0, k0, s.depth), s.depth), B: kn.PackedB(packed, s.depth),
				C: sums, Add: k0 > 0 || p.add && !p.half,
			}
			last := k0+s.depth == p.k
			if last && p.half {
				b.Out = p.out(0, s.j)
			}
			if next.n > 0 {
				b.Next = kn.NextB(p.b.At(next.k0, next.j), next.depth, next.n)
			}
			kn.Multiply(b)
			if last && !p.half && p.bias != nil {
				p.addBias(sums, p.m, s.n, s.j)
			}
		}
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
