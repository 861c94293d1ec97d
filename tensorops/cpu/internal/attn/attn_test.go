package attn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

func available() []*attn.Kernel {
	var ks []*attn.Kernel
	for _, g := range gemm.Available() {
		for _, k := range all {
			if k.Gemm == g {
				ks = append(ks, k)
			}
		}
	}
	return ks
}

// problem is a group of heads with everything that goes in and comes out.
type problem struct {
	attn.Shape
	heads []attn.Head
	kv    attn.Keys
}

func matrix(r *rand.Rand, rows, cols int) gemm.Matrix {
	m := gemm.Matrix{Data: make([]float32, rows*(cols+3)), Row: cols + 3, Col: 1}
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

func newProblem(r *rand.Rand, queries, keys, dim, group int, dropout bool) *problem {
	p := &problem{Shape: attn.Shape{Queries: queries, Keys: keys, Dim: dim, Scale: float32(1 / math.Sqrt(float64(dim)))}}
	if dropout {
		p.Mask = func(dst []float32, head, query, first int) {
			for i := range dst {
				dst[i] = 1.25
				if (head*31+query*7+(first+i)*3)%5 == 0 {
					dst[i] = 0
				}
			}
		}
	}
	p.kv = attn.Keys{K: matrix(r, keys, dim), V: matrix(r, keys, dim), DK: matrix(r, keys, dim), DV: matrix(r, keys, dim)}
	for i := range group {
		p.heads = append(p.heads, attn.Head{Index: i, Q: matrix(r, queries, dim), O: matrix(r, queries, dim), DO: matrix(r, queries, dim), DQ: matrix(r, queries, dim), LSE: make([]float32, queries)})
	}
	return p
}

func (p *problem) run(kn *attn.Kernel) {
	var ws attn.Workspace
	for i := range p.heads {
		kn.Forward(&ws, &p.Shape, &p.heads[i], &p.kv)
	}
	kn.Backward(&ws, &p.Shape, p.heads, &p.kv)
}

// reference holds the same results in float64, each matrix in rows of Dim.
type reference struct {
	o, dq  [][]float64 // of each head
	dk, dv []float64
}

func at(m gemm.Matrix, i, j int) float64 { return float64(m.Data[i*m.Row+j]) }

func (p *problem) reference() reference {
	d := p.Dim
	ref := reference{dk: make([]float64, p.Keys*d), dv: make([]float64, p.Keys*d)}
	for _, h := range p.heads {
		o, dq := make([]float64, p.Queries*d), make([]float64, p.Queries*d)
		for i := range p.Queries {
			seen := i + 1 + p.Keys - p.Queries
			prob, mask, grad := make([]float64, seen), make([]float32, seen), make([]float64, seen)
			for k := range mask {
				mask[k] = 1
			}
			if p.Mask != nil {
				p.Mask(mask, h.Index, i, 0)
			}
			var sum, delta float64
			for k := range prob {
				for c := range d {
					prob[k] += at(h.Q, i, c) * at(p.kv.K, k, c)
					grad[k] += at(h.DO, i, c) * at(p.kv.V, k, c)
				}
				prob[k] = math.Exp(prob[k] * float64(p.Scale))
				sum += prob[k]
			}
			for k := range prob {
				prob[k] /= sum
				grad[k] *= float64(mask[k])
				delta += prob[k] * grad[k]
			}
			for k, pr := range prob {
				ds := pr * (grad[k] - delta) * float64(p.Scale)
				for c := range d {
					o[i*d+c] += pr * float64(mask[k]) * at(p.kv.V, k, c)
					ref.dv[k*d+c] += pr * float64(mask[k]) * at(h.DO, i, c)
					ref.dk[k*d+c] += ds * at(h.Q, i, c)
					dq[i*d+c] += ds * at(p.kv.K, k, c)
				}
			}
		}
		ref.o, ref.dq = append(ref.o, o), append(ref.dq, dq)
	}
	return ref
}

func compare(t *testing.T, what string, got gemm.Matrix, want []float64, d int) {
	t.Helper()
	size := 0.5 // inputs are around 1: where all cancels out, their rounding stays
	for _, w := range want {
		size = max(size, math.Abs(w))
	}
	for i, w := range want {
		if e := math.Abs(at(got, i/d, i%d) - w); !(e <= 4e-6*size) {
			t.Fatalf("%s at %d, %d: %g, want %g (largest %g)", what, i/d, i%d, at(got, i/d, i%d), w, size)
		}
	}
}

func (p *problem) check(t *testing.T, kn *attn.Kernel) {
	t.Helper()
	p.run(kn)
	ref := p.reference()
	for i, h := range p.heads {
		compare(t, fmt.Sprintf("o of head %d", i), h.O, ref.o[i], p.Dim)
		compare(t, fmt.Sprintf("dq of head %d", i), h.DQ, ref.dq[i], p.Dim)
	}
	compare(t, "dk", p.kv.DK, ref.dk, p.Dim)
	compare(t, "dv", p.kv.DV, ref.dv, p.Dim)
}

// TestAttention has sizes on both sides of every strip's and block's border.
func TestAttention(t *testing.T) {
	for _, kn := range available() {
		for _, queries := range []int{1, 2, 5, 6, 7, 15, 16, 17, 31, 33, 70, 287, 288, 289, 301, 580} {
			for _, more := range []int{0, 1, 6, 300} {
				for _, dim := range []int{1, 7, 16, 33} {
					if queries > 100 && (dim > 16 || kn.Gemm.Name == "go" && dim > 7) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%d+%d×%d", kn.Gemm.Name, queries, more, dim), func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(queries), uint64(dim)))
						newProblem(r, queries, queries+more, dim, 1+queries%2, more == 1).check(t, kn)
					})
				}
			}
		}
	}
}

func FuzzAttention(f *testing.F) {
	f.Add(uint16(40), uint16(3), uint8(9), uint8(2), true, uint64(1))
	f.Fuzz(func(t *testing.T, queries, more uint16, dim, group uint8, dropout bool, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 1 + int(queries)%400
		p := newProblem(r, n, n+int(more)%330, 1+int(dim)%70, 1+int(group)%3, dropout)
		for _, kn := range available() {
			p.check(t, kn)
		}
	})
}

// TestPathsAgree: the assembly paths give the same bits.
func TestPathsAgree(t *testing.T) {
	var first *problem
	for _, kn := range available() {
		if kn.Gemm.Name == "go" {
			continue
		}
		p := newProblem(rand.New(rand.NewPCG(5, 5)), 333, 340, 24, 2, true)
		p.run(kn)
		if first == nil {
			first = p
		}
		for _, pair := range [][2]gemm.Matrix{{p.kv.DK, first.kv.DK}, {p.kv.DV, first.kv.DV}, {p.heads[1].O, first.heads[1].O}, {p.heads[1].DQ, first.heads[1].DQ}} {
			for i := range pair[0].Data {
				if math.Float32bits(pair[0].Data[i]) != math.Float32bits(pair[1].Data[i]) {
					t.Fatalf("%s: element %d is %g, another path says %g", kn.Gemm.Name, i, pair[0].Data[i], pair[1].Data[i])
				}
			}
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	for _, kn := range available() {
		for _, size := range []int{256, 1024} {
			const dim = 64
			p := newProblem(rand.New(rand.NewPCG(1, 1)), size, size, dim, 1, false)
			var ws attn.Workspace
			flops := 2 * 2 * float64(size) * float64(size) / 2 * dim
			b.Run(fmt.Sprintf("%s/forward/%d", kn.Gemm.Name, size), func(b *testing.B) {
				for b.Loop() {
					kn.Forward(&ws, &p.Shape, &p.heads[0], &p.kv)
				}
				b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
			b.Run(fmt.Sprintf("%s/backward/%d", kn.Gemm.Name, size), func(b *testing.B) {
				for b.Loop() {
					kn.Backward(&ws, &p.Shape, p.heads, &p.kv)
				}
				b.ReportMetric(2.5*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
