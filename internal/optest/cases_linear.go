package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// usualSizes lie around the borders that kernels like to have.
var usualSizes = []int{
	1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 95, 96, 97,
	11, 12, 13, 127, 129, 191, 193, 255, 256, 257, 287, 289, 300, 511, 513,
}

// shapes are rows × columns for operations on elements, rows and columns: none,
// one of each, and enough to be split over threads.
var shapes = [][2]int{{0, 16}, {1, 1}, {1, 129}, {37, 1}, {5, 7}, {130, 300}, {37, 515}}

// matmul is one matrix product.
type matmul struct {
	m, n, k        int
	transA, transB bool
	accumulate     bool
	bias           bool
	bf16           bool
	packed         bool // B is packed first
	views          bool // all three matrices are columns of wider ones
	// b is the type of B where it is another than those of A and C: bfloat16 in a product of float32, or quantized.
	b tensorops.DType
}

func (p matmul) String() string {
	s := fmt.Sprintf("%d×%d×%d", p.m, p.n, p.k)
	if p.accumulate {
		s += " accumulate"
	}
	if p.bias {
		s += " bias"
	}
	if p.bf16 {
		s += " bf16"
	}
	if p.packed {
		s += " packed"
	}
	if p.views {
		s += " views"
	}
	if p.b != tensorops.Float32 {
		s += " of " + p.b.String()
	}
	return s
}

func (p matmul) record(b *builder) {
	operand := func(rows, cols int, transposed bool) (whole, t tensorops.Tensor) {
		if transposed {
			rows, cols = cols, rows
		}
		if p.views {
			return b.framed(rows, cols)
		}
		t = b.normal(rows, cols)
		return t, t
	}
	_, x := operand(p.m, p.k, p.transA)
	_, y := operand(p.k, p.n, p.transB)
	if p.b != tensorops.Float32 {
		y = b.frozen(p.b, y, p.views)
	}
	var whole, c tensorops.Tensor
	if p.accumulate { // to float32 alone
		b.inSingle(func() { whole, c = operand(p.m, p.n, false) })
	} else {
		whole, c = operand(p.m, p.n, false)
		b.Fill(whole, math.NaN())
	}
	o := tensorops.MatMulOpts{TransA: p.transA, TransB: p.transB, Accumulate: p.accumulate, BF16: p.bf16}
	if p.bias {
		o.Bias = b.normal(p.n)
		if !p.bf16 {
			b.inSingle(func() { o.Bias = b.normal(p.n) })
		}
	}
	if p.packed {
		o.Packed = b.packed(tensorops.PackedLen(p.k, p.n), p.bf16)
		b.Pack(o.Packed, y, p.transB, p.bf16)
	}
	b.MatMul(c, x, y, o)
	b.check(whole, "C of %v", p).summed(p.k)
}

func linearCases(extra []int) []Case {
	sizes := slices.Concat(usualSizes, extra)
	var cases []Case
	matMul := func(name string, products []matmul) {
		kind := tensorops.KindMatMul
		if products[0].packed {
			kind = tensorops.KindPack
		}
		c := Case{kind.String() + "/" + name, kind, func(b *builder) {
			for _, p := range products {
				p.record(b)
			}
		}}
		if products[0].bf16 {
			cases = append(cases, c.in("mixed", tensorops.BFloat16, tensorops.Float32, tensorops.BFloat16))
		}
		cases = append(cases, c)
	}
	for _, form := range []struct {
		name           string
		transA, transB bool
	}{{"NN", false, false}, {"NT", false, true}, {"TN", true, false}, {"TT", true, true}} {
		f := matmul{transA: form.transA, transB: form.transB}
		matMul(form.name+"/sizes", f.sweep(sizes))
		matMul(form.name+"/split", f.split(200, 300, 260))
		matMul(form.name+"/variants", f.variants(37, 65, 129))
		matMul(form.name+"/odd", f.split(37, 129, 515))
		matMul(form.name+"/long", f.variants(3, 5, 5000))
		f.packed = true
		matMul(form.name+"/sizes", f.sweep(usualSizes))
		large := f.split(700, 130, 600)
		if form.transA { // which nothing that is packed depends on
			large = f.split(70, 130, 600)
		}
		matMul(form.name+"/split", slices.Concat(f.split(200, 300, 260), large))
		f.packed, f.bf16 = false, true
		matMul(form.name+"/bf16 sizes", f.sweep(sizes))
		matMul(form.name+"/bf16 split", f.split(200, 300, 260))
		matMul(form.name+"/bf16 variants", f.variants(37, 65, 129))
		matMul(form.name+"/bf16 long", f.variants(30, 70, 2100))
		matMul(form.name+"/bf16 steps", f.variants(40, 64, 128)) // of which rows begin at multiples of 16 bytes
		f.packed = true
		for i := range large {
			large[i].bf16 = true
		}
		matMul(form.name+"/bf16", slices.Concat(f.variants(37, 65, 129), large))
	}
	cases = append(cases, frozenCases()...)
	cases = append(cases, Case{"matmul/rows of larger matrices", tensorops.KindMatMul, matMulRows})
	cases = append(cases, Case{"matmul/symmetric", tensorops.KindMatMul, symmetric})
	sums := Case{"matmul/column sums", tensorops.KindMatMul, weightGrads}
	cases = append(cases, sums, sums.in("bfloat16", tensorops.BFloat16))
	return append(cases, eitherType([]Case{
		{"col_sum/shapes", tensorops.KindColSum, func(b *builder) {
			for _, s := range append(shapes, [2]int{3000, 17}) {
				sum := b.single(s[1])
				b.ColSum(sum, b.normal(s[0], s[1]))
				b.check(sum, "sum of %v", s).summed(s[0])
			}
		}},
		{"add/shapes", tensorops.KindAdd, func(b *builder) {
			for _, s := range shapes {
				out := b.garbage(s[0], s[1])
				b.Add(out, b.normal(s[0], s[1]), b.normal(s[0], s[1]))
				b.check(out, "out of %v", s)
			}
		}},
		{"add/in place", tensorops.KindAdd, func(b *builder) {
			x, y, z := b.normal(37, 515), b.normal(37, 515), b.normal(37, 515)
			b.Add(x, x, y)
			b.check(x, "out = a")
			b.Add(y, x, y)
			b.check(y, "out = b")
			b.Add(z, z, z)
			b.check(z, "out = a = b")
		}},
		{"add/rows of a larger tensor", tensorops.KindAdd, func(b *builder) {
			out := b.garbage(20, 9)
			b.Add(out.RowRange(3, 8), b.normal(20, 9).RowRange(1, 6), b.normal(20, 9).RowRange(15, 20))
			b.check(out, "out")
		}},
	})...)
}

// sweep puts each size in each of the three places, in all variants by turns.
func (p matmul) sweep(sizes []int) []matmul {
	var all []matmul
	add := func(m, n, k int) {
		p.m, p.n, p.k = m, n, k
		i := len(all)
		p.accumulate, p.bias, p.views = i%3 == 1, i%3 == 2, i%2 == 1
		all = append(all, p)
	}
	for i, s := range sizes {
		add(s, 5, 7)
		add(6, s, 11)
		add(9, 4, s)
		t, u := sizes[(i+5)%len(sizes)], sizes[(i+11)%len(sizes)]
		if s*t*u < 1<<20 {
			add(s, t, u)
		}
	}
	for _, empty := range [][3]int{{0, 5, 7}, {6, 0, 11}, {9, 4, 0}} {
		for range 3 {
			add(empty[0], empty[1], empty[2])
		}
	}
	return all
}

// variants are all that can be asked of one size.
func (p matmul) variants(m, n, k int) []matmul {
	p.m, p.n, p.k = m, n, k
	plain, accumulate, bias, views := p, p, p, p
	accumulate.accumulate = true
	bias.bias = true
	views.views = true
	both := accumulate
	both.views = true
	return []matmul{plain, accumulate, bias, views, both}
}

// split is one size that is worth splitting over threads, in the plainest and
// the richest form.
func (p matmul) split(m, n, k int) []matmul {
	p.m, p.n, p.k = m, n, k
	rich := p
	rich.accumulate, rich.views = true, true
	return []matmul{p, rich}
}

// weightGrads are those of linear layers with the gradients of their biases, which are the sums of one
// of the product's matrices: a device may make both at once.
func weightGrads(b *builder) {
	for _, s := range [][3]int{{1, 8, 16}, {70, 24, 40}, {300, 64, 136}, {37, 7, 13}, {0, 8, 8}} {
		rows, in, out := s[0], s[1], s[2]
		x, dy := b.normal(rows, in), b.normal(rows, out)
		first, second, bias := b.single(in, out), b.single(out, in), b.single(out)
		o := tensorops.MatMulOpts{TransA: true, Accumulate: true, BF16: true}
		b.MatMul(first, x, dy, o)
		b.ColSum(bias, dy)
		b.MatMul(second, dy, x, o)
		b.ColSum(bias, dy)
		b.check(first, "[in, out] of %v", s).summed(rows)
		b.check(second, "[out, in] of %v", s).summed(rows)
		b.check(bias, "bias of %v", s).summed(2 * rows)
	}
}

// symmetric multiplies matrices with themselves.
func symmetric(b *builder) {
	for _, s := range [][2]int{{1, 3}, {13, 40}, {65, 9}, {200, 130}} {
		for _, tall := range []bool{false, true} {
			for _, half := range []bool{false, true} {
				x, c := b.single(s[0], s[1]), b.garbage32(s[0], s[0])
				if tall {
					x = x.View(s[1], s[0])
				}
				b.MatMul(c, x, x, tensorops.MatMulOpts{TransA: tall, TransB: !tall, BF16: half, Symmetric: true})
				b.check(c, "C of %v, tall %v, bf16 %v", s, tall, half).summed(s[1])
			}
		}
	}
}

// matMulRows multiplies ranges of rows: matrices that don't start their buffer.
func matMulRows(b *builder) {
	c := b.garbage(12, 33)
	b.MatMul(c.RowRange(5, 9), b.normal(10, 20).RowRange(6, 10), b.normal(70, 33).RowRange(50, 70), tensorops.MatMulOpts{})
	b.check(c, "C").summed(20)
}
