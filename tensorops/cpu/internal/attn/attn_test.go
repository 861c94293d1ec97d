package attn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
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
	return append(ks, halves()...)
}

// problem is a group of heads with everything that goes in and comes out.
type problem struct {
	attn.Shape
	heads []attn.Head
	kv    attn.Keys

	name string // of what it was drawn by, where another kernel is given the same; "": nothing else is
}

// references are those of problems with names, each of which is made once: it takes longer than the kernels.
var references = make(map[string]reference)

// memory says which matrices are bfloat16.
type memory int

const (
	float   memory = iota
	rounded        // float32 that bfloat16 can hold
	half
	mixed // some are rounded, some half
)

// matrices draws matrices of a problem.
type matrices struct {
	*rand.Rand
	memory
	drawn int
}

func (r *matrices) matrix(rows, cols int) gemm.Matrix {
	row := cols + 3
	if cols%256 == 0 {
		row = cols // of a benchmark
	}
	m := gemm.Matrix{Data: make([]float32, rows*row), Row: row, Col: 1}
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	if r.memory != float {
		vec.Go.RoundBF16(m.Data, m.Data)
	}
	r.drawn++
	if r.memory == half || r.memory == mixed && r.drawn%3 != 0 {
		m.Half = make([]uint16, len(m.Data))
		vec.Go.ToBF16(m.Half, m.Data)
		m.Data = nil
	}
	return m
}

func newProblem(seed *rand.Rand, in memory, queries, keys, dim, group int, dropout bool, window int) *problem {
	r := &matrices{Rand: seed, memory: in}
	p := &problem{Shape: attn.Shape{Queries: queries, Keys: keys, Dim: dim, Window: window, Offset: keys - queries,
		Scale: float32(1 / math.Sqrt(float64(dim)))}}
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
	p.kv = attn.Keys{K: r.matrix(keys, dim), V: r.matrix(keys, dim), DK: r.matrix(keys, dim), DV: r.matrix(keys, dim)}
	for i := range group {
		p.heads = append(p.heads, attn.Head{Index: i, Q: r.matrix(queries, dim), O: r.matrix(queries, dim), DO: r.matrix(queries, dim),
			DQ: r.matrix(queries, dim), LSE: make([]float32, queries)})
	}
	return p
}

func (p *problem) run(kn *attn.Kernel, ws *attn.Workspace) {
	for i := range p.heads {
		kn.Forward(ws, &p.Shape, &p.heads[i], &p.kv)
	}
	kn.Backward(ws, &p.Shape, p.heads, &p.kv)
}

// poison makes NaN of all that comes in.
func (p *problem) poison() *problem {
	p.kv.K = gemm.Matrix{Data: slices.Repeat([]float32{float32(math.NaN())}, p.Keys*p.Dim), Row: p.Dim, Col: 1}
	p.kv.V = p.kv.K
	for i := range p.heads {
		p.heads[i].Q = p.kv.K
		p.heads[i].DO = p.kv.K
	}
	return p
}

// reference holds the same results in float64, each matrix in rows of Dim.
type reference struct {
	o, dq  [][]float64 // of each head
	dk, dv []float64
}

func at(m gemm.Matrix, i, j int) float64 {
	if m.Half != nil {
		return float64(math.Float32frombits(uint32(m.Half[i*m.Row+j]) << 16))
	}
	return float64(m.Data[i*m.Row+j])
}

func (p *problem) reference() reference {
	d := p.Dim
	ref := reference{dk: make([]float64, p.Keys*d), dv: make([]float64, p.Keys*d)}
	for _, h := range p.heads {
		o, dq := make([]float64, p.Queries*d), make([]float64, p.Queries*d)
		for i := range p.Queries {
			seen := i + 1 + p.Keys - p.Queries
			prob, mask, grad, slope := make([]float64, seen), make([]float32, seen), make([]float64, seen), make([]float64, seen)
			for k := range mask {
				mask[k] = 1
			}
			if p.Mask != nil {
				p.Mask(mask, h.Index, i, 0)
			}
			var sum, delta float64
			from := 0
			if p.Window > 0 {
				from = max(0, seen-p.Window)
			}
			if p.Starts != nil {
				from = max(from, int(p.Starts[i]))
			}
			for k := from; k < seen; k++ {
				for c := range d {
					prob[k] += at(h.Q, i, c) * at(p.kv.K, k, c)
					grad[k] += at(h.DO, i, c) * at(p.kv.V, k, c)
				}
				prob[k] *= float64(p.Scale)
				if slope[k] = float64(p.Scale); p.Cap > 0 {
					t := math.Tanh(prob[k] / float64(p.Cap))
					prob[k], slope[k] = float64(p.Cap)*t, slope[k]*(1-t*t)
				}
				prob[k] = math.Exp(prob[k])
				sum += prob[k]
			}
			for k := from; k < seen; k++ {
				prob[k] /= sum
				grad[k] *= float64(mask[k])
				delta += prob[k] * grad[k]
			}
			for k, pr := range prob {
				ds := pr * (grad[k] - delta) * slope[k]
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

// tolerance is relative to the largest number.
func tolerance(kn *attn.Kernel, in memory) float64 {
	const ulp = 1.0 / 256 // of bfloat16
	switch {
	case in == half || in == mixed:
		return 4 * ulp // delta comes from a rounded o
	case !kn.MultipliesBF16():
		return 4e-6
	case in == rounded:
		return 2 * ulp // of P and dS
	}
	return 16 * ulp
}

func compare(t *testing.T, what string, got gemm.Matrix, want []float64, d int, tolerance float64) {
	t.Helper()
	size := 0.5 // inputs are around 1: where all cancels out, their rounding stays
	for _, w := range want {
		size = max(size, math.Abs(w))
	}
	for i, w := range want {
		if e := math.Abs(at(got, i/d, i%d) - w); !(e <= tolerance*size) {
			t.Fatalf("%s at %d, %d: %g, want %g (largest %g)", what, i/d, i%d, at(got, i/d, i%d), w, size)
		}
	}
}

func (p *problem) check(t *testing.T, kn *attn.Kernel, ws *attn.Workspace, in memory) {
	t.Helper()
	p.run(kn, ws)
	ref, known := references[p.name]
	if !known {
		ref = p.reference()
	}
	if p.name != "" {
		references[p.name] = ref
	}
	tol := tolerance(kn, in)
	for i, h := range p.heads {
		compare(t, fmt.Sprintf("o of head %d", i), h.O, ref.o[i], p.Dim, tol)
		compare(t, fmt.Sprintf("dq of head %d", i), h.DQ, ref.dq[i], p.Dim, tol)
	}
	compare(t, "dk", p.kv.DK, ref.dk, p.Dim, tol)
	compare(t, "dv", p.kv.DV, ref.dv, p.Dim, tol)
}

// TestAttention has sizes on both sides of every strip's and block's border.
func TestAttention(t *testing.T) {
	for _, kn := range available() {
		if kn.MultipliesBF16() {
			continue // see TestHalves
		}
		for _, queries := range []int{1, 2, 5, 6, 7, 15, 16, 17, 31, 33, 70, 287, 288, 289, 301, 580} {
			for _, more := range []int{0, 1, 6, 300} {
				for _, dim := range []int{1, 7, 16, 33} {
					if queries > 100 && (dim > 16 || kn.Gemm.Name == "go" && dim > 7) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%d+%d×%d", kn.Gemm.Name, queries, more, dim), func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(queries), uint64(dim)))
						p := newProblem(r, float, queries, queries+more, dim, 1+queries%2, more == 1, 0)
						p.name = fmt.Sprintf("attention %d+%d×%d", queries, more, dim)
						p.check(t, kn, new(attn.Workspace), float)
					})
				}
			}
		}
	}
}

// TestWindow has windows that begin in the middle of strips and blocks, and on their borders.
func TestWindow(t *testing.T) {
	for _, kn := range available() {
		for _, size := range []struct{ queries, more, window int }{
			{1, 0, 1}, {5, 0, 1}, {5, 3, 2}, {40, 0, 7}, {40, 9, 100}, {65, 0, 64}, {300, 0, 12}, {301, 300, 288}, {310, 5, 289}, {620, 0, 30},
			{1, 700, 20}, {2, 700, 126},
		} {
			for _, in := range []memory{float, mixed} {
				for _, dropout := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%+v/%d/%v", kn.Name, size, in, dropout), func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(size.queries), uint64(size.window)))
						p := newProblem(r, in, size.queries, size.queries+size.more, 5, 1+size.window%2, dropout, size.window)
						p.name = fmt.Sprintf("window %+v/%d/%v", size, in, dropout)
						p.check(t, kn, new(attn.Workspace), in)
					})
				}
			}
		}
	}
}

// documents are where the documents of queries start: of 1 to longest tokens, or 0: anywhere, with some queries
// that see no key.
func documents(r *rand.Rand, queries, keys, longest int) []int32 {
	starts, next, start := make([]int32, 0, queries), 0, 0
	for position := range keys {
		if position >= next && longest > 0 {
			start, next = position, position+1+r.IntN(longest)
		}
		if longest == 0 {
			start = r.IntN(keys+20) - 10
		}
		if position >= keys-queries {
			starts = append(starts, int32(start))
		}
	}
	return starts
}

// TestStarts has documents that start in the middle of strips and blocks, and starts in no order.
func TestStarts(t *testing.T) {
	for _, kn := range available() {
		for _, size := range []struct{ queries, more, longest, window int }{
			{1, 0, 1, 0}, {5, 3, 1, 0}, {40, 0, 7, 0}, {40, 9, 100, 20}, {65, 0, 1, 0}, {70, 6, 0, 0}, {300, 0, 12, 0}, {301, 300, 400, 0},
			{310, 5, 0, 60}, {620, 0, 200, 0}, {1, 700, 0, 0},
		} {
			for _, in := range []memory{float, mixed} {
				for _, dropout := range []bool{false, true} {
					if size.longest == 1 && in == mixed && dropout {
						continue // with one key, dq is nothing but the rounding of o
					}
					t.Run(fmt.Sprintf("%s/%+v/%d/%v", kn.Name, size, in, dropout), func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(size.queries), uint64(size.longest)))
						p := newProblem(r, in, size.queries, size.queries+size.more, 5, 1+size.longest%2, dropout, size.window)
						p.Starts = documents(r, p.Queries, p.Keys, size.longest)
						p.name = fmt.Sprintf("starts %+v/%d/%v", size, in, dropout)
						var ws attn.Workspace
						p.run(kn, &ws) // what it leaves must not matter
						p.check(t, kn, &ws, in)
					})
				}
			}
		}
	}
}

// TestHalves has operands of bfloat16, multiplied as such where the path does so. What is
// left in the workspace must not matter.
func TestHalves(t *testing.T) {
	for _, kn := range available() {
		for _, size := range []struct{ queries, more, dim, group int }{
			{1, 0, 1, 1}, {1, 0, 8, 2}, {1, 1, 3, 1}, {1, 40, 64, 2}, {2, 0, 7, 1}, {3, 2, 33, 3}, {11, 0, 5, 1}, {12, 1, 16, 1},
			{13, 0, 64, 1}, {31, 6, 31, 2}, {33, 0, 32, 1}, {64, 0, 64, 1}, {65, 1, 65, 1}, {70, 33, 132, 2}, {97, 0, 100, 3},
			{287, 0, 9, 1}, {289, 300, 16, 1}, {301, 1, 8, 2},
		} {
			for _, in := range []memory{float, rounded, half, mixed} {
				for _, dropout := range []bool{false, true} {
					if !kn.MultipliesBF16() && in != mixed {
						continue
					}
					if size.queries > 100 && (in != mixed || !dropout || kn.Gemm.Name == "go") {
						continue // the reference is slow
					}
					t.Run(fmt.Sprintf("%s/%+v/%d/%v", kn.Name, size, in, dropout), func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(size.queries), uint64(size.dim)))
						draw := func() *problem {
							return newProblem(r, in, size.queries, size.queries+size.more, size.dim, size.group, dropout, 0)
						}
						var ws attn.Workspace
						draw().poison().run(kn, &ws)
						p := draw()
						p.name = fmt.Sprintf("halves %+v/%d/%v", size, in, dropout)
						p.check(t, kn, &ws, in)
					})
				}
			}
		}
	}
}

// TestSoftCap has caps below most scores, among them and above them.
func TestSoftCap(t *testing.T) {
	for _, kn := range available() {
		for _, size := range []struct {
			queries, more, dim, window int
			cap                        float32
		}{{1, 0, 1, 0, 1}, {5, 3, 7, 0, 0.1}, {40, 9, 16, 0, 2}, {65, 1, 33, 20, 50}, {300, 20, 8, 0, 1}, {310, 0, 8, 40, 3}} {
			for _, in := range []memory{float, mixed} {
				t.Run(fmt.Sprintf("%s/%+v/%d", kn.Name, size, in), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(size.queries), uint64(size.dim)))
					p := newProblem(r, in, size.queries, size.queries+size.more, size.dim, 1+size.queries%2, size.dim == 16, size.window)
					p.Cap, p.name = size.cap, fmt.Sprintf("soft cap %+v/%d", size, in)
					p.check(t, kn, new(attn.Workspace), in)
				})
			}
		}
	}
}

// TestTanh: the loops of the soft cap have the tangent to three ulps, those for products of bfloat16 to
// 2·10⁻⁴ of it, for numbers of every size and for what is none.
func TestTanh(t *testing.T) {
	n := 4 * 32 * 1000
	in := make([]float32, n)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range in {
		in[i] = float32(r.NormFloat64() * math.Exp(4*r.NormFloat64()))
	}
	copy(in, []float32{0, 1e-38, -1e-38, 8.99, 9, 9.01, -9, 100, -1e30, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())})
	for _, kn := range available() {
		got, again, slope := slices.Clone(in), slices.Clone(in), make([]float32, n)
		relative, ofSlope := 3.5e-7, 2e-6
		if kn.MultipliesBF16() {
			relative, ofSlope = 2e-4, 8e-4
		}
		attn.Cap(kn, got, 0.5, 3)
		attn.CapSlope(kn, again, slope, 0.5, 3, 2)
		for i, v := range in {
			want := math.Tanh(float64(v) / 2)
			if math.Float32bits(again[i]) != math.Float32bits(got[i]) || math.IsNaN(want) != (got[i] != got[i]) ||
				math.Abs(float64(got[i])/3-want) > relative*math.Abs(want)+1e-45 || math.Abs(float64(slope[i])-2*(1-want*want)) > ofSlope {
				t.Fatalf("%s: tanh(%g/2) is %g, and %g with the slope %g; want %g", kn.Name, v, got[i]/3, again[i]/3, slope[i]/2, want)
			}
		}
	}
}

func FuzzAttention(f *testing.F) {
	f.Add(uint16(40), uint16(3), uint8(9), uint8(2), true, uint8(1), uint64(1), uint16(0))
	f.Fuzz(func(t *testing.T, queries, more uint16, dim, group uint8, dropout bool, in uint8, seed uint64, window uint16) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 1 + int(queries)%400
		where := memory(in % 4)
		p := newProblem(r, where, n, n+int(more)%330, 1+int(dim)%140, 1+int(group)%3, dropout, int(window)%800)
		for _, kn := range available() {
			p.check(t, kn, new(attn.Workspace), where)
		}
	})
}

// TestPathsAgree: the assembly paths give the same bits.
func TestPathsAgree(t *testing.T) {
	var first *problem
	for _, kn := range available() {
		if kn.Gemm.Name == "go" || kn.MultipliesBF16() {
			continue
		}
		p := newProblem(rand.New(rand.NewPCG(5, 5)), float, 333, 340, 24, 2, true, 50)
		p.Cap = 2
		p.Starts = documents(rand.New(rand.NewPCG(6, 6)), p.Queries, p.Keys, 60)
		p.run(kn, new(attn.Workspace))
		if first == nil {
			first = p
		}
		for _, pair := range [][2]gemm.Matrix{{p.kv.DK, first.kv.DK}, {p.kv.DV, first.kv.DV}, {p.heads[1].O, first.heads[1].O},
			{p.heads[1].DQ, first.heads[1].DQ}} {
			for i := range pair[0].Data {
				if math.Float32bits(pair[0].Data[i]) != math.Float32bits(pair[1].Data[i]) {
					t.Fatalf("%s: element %d is %g, another path says %g", kn.Gemm.Name, i, pair[0].Data[i], pair[1].Data[i])
				}
			}
		}
	}
}

// BenchmarkShares prints what a window, a soft cap and documents cost, beside attention without them. A window of
// a context of four times its length has 7/16 of the pairs of causal attention, and 7/32 of those of
// all queries and keys.
func BenchmarkShares(b *testing.B) {
	for _, kn := range available() {
		in := float
		if kn.MultipliesBF16() {
			in = half
		}
		for _, size := range []struct{ dim, context, window int }{{64, 2048, 256}, {64, 2048, 512}, {128, 2048, 512}, {256, 2048, 512}} {
			p := newProblem(rand.New(rand.NewPCG(1, 1)), in, size.context, size.context, size.dim, 1, false, 0)
			var ws attn.Workspace
			starts := make([]int32, size.context) // of documents as long as the window
			for i := range starts {
				starts[i] = int32(i / size.window * size.window)
			}
			for _, gradient := range []bool{false, true} {
				// A measurement is the least of those of several rounds, of which each has one of all forms.
				forms := []func(s *attn.Shape){
					func(*attn.Shape) {},
					func(s *attn.Shape) { s.Offset = s.Keys },
					func(s *attn.Shape) { s.Window = size.window },
					func(s *attn.Shape) { s.Cap = 50 },
					func(s *attn.Shape) { s.Starts = starts },
				}
				least := []time.Duration{1 << 62, 1 << 62, 1 << 62, 1 << 62, 1 << 62}
				b.Run(fmt.Sprintf("%s/%+v/gradient=%v", kn.Name, size, gradient), func(b *testing.B) {
					for b.Loop() {
						for i, change := range forms {
							s := p.Shape
							change(&s)
							start := time.Now()
							if gradient {
								kn.Backward(&ws, &s, p.heads, &p.kv)
							} else {
								kn.Forward(&ws, &s, &p.heads[0], &p.kv)
							}
							least[i] = min(least[i], time.Since(start))
						}
					}
					share := func(i, of int) float64 { return float64(least[i]) / float64(least[of]) }
					b.ReportMetric(share(2, 1)*float64(size.context)/float64(size.window), "window/(W/T·whole)")
					b.ReportMetric(share(2, 0), "window/causal")
					b.ReportMetric(share(3, 0), "cap/causal")
					b.ReportMetric(share(4, 0), "docs/causal")
				})
			}
		}
	}
}

// BenchmarkAttention takes one head after the other of the 12 of GPT-2, whose rows lie side by
// side.
func BenchmarkAttention(b *testing.B) {
	const dim, heads = 64, 12
	for _, kn := range available() {
		in := float
		if kn.MultipliesBF16() {
			in = half
		}
		for _, size := range [][2]int{{1, 256}, {64, 64}, {256, 256}, {1024, 1024}} {
			queries, keys := size[0], size[1]
			p := newProblem(rand.New(rand.NewPCG(1, 1)), in, queries, keys, dim*heads, 1, false, 0)
			p.Dim, p.Scale = dim, float32(1/math.Sqrt(dim))
			var hs [heads]attn.Head
			var kv [heads]attn.Keys
			for i := range hs {
				h, at := p.heads[0], i*dim
				hs[i] = attn.Head{Q: h.Q.At(0, at), O: h.O.At(0, at), DO: h.DO.At(0, at), DQ: h.DQ.At(0, at), LSE: h.LSE}
				kv[i] = attn.Keys{K: p.kv.K.At(0, at), V: p.kv.V.At(0, at), DK: p.kv.DK.At(0, at), DV: p.kv.DV.At(0, at)}
			}
			var ws attn.Workspace
			flops := 2 * 2 * float64(queries) * (float64(keys) - float64(queries)/2) * dim
			measure := func(what string, flops float64, run func(i int)) {
				b.Run(fmt.Sprintf("%s/%s/%d×%d", kn.Name, what, queries, keys), func(b *testing.B) {
					for i := 0; b.Loop(); i++ {
						run(i % heads)
					}
					b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
			measure("forward", flops, func(i int) { kn.Forward(&ws, &p.Shape, &hs[i], &kv[i]) })
			measure("backward", 2.5*flops, func(i int) { kn.Backward(&ws, &p.Shape, hs[i:i+1], &kv[i]) })
		}
	}
}
