package optest

import (
	"math"
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// frozenTypes are the types of frozen weights.
var frozenTypes = []tensorops.DType{tensorops.BFloat16, tensorops.Int8, tensorops.NF4}

// frozen is a copy of a matrix in a type of frozen weights. As a view it is columns of a wider matrix, which begin and end
// within blocks.
func (b *builder) frozen(of tensorops.DType, t tensorops.Tensor, view bool) tensorops.Tensor {
	if view {
		t = b.normal(t.Rows(), tensorops.QuantBlock+7+t.Cols()+3)
	}
	w := b.Alloc(of, t.Rows(), t.Cols())
	b.tensors = append(b.tensors, w)
	b.Copy(w, t)
	if view {
		return w.Columns(tensorops.QuantBlock+7, w.Cols()-3)
	}
	return w
}

// frozenCases are products with a frozen weight, forward (NT) and for the gradient of the input (NN).
func frozenCases() []Case {
	var cases []Case
	for _, of := range frozenTypes {
		for _, p := range []matmul{{b: of}, {b: of, transB: true}} {
			name := "matmul/NN/"
			if p.transB {
				name = "matmul/NT/"
			}
			add := func(what string, products []matmul) {
				c := Case{name + of.String() + " B " + what, tensorops.KindMatMul, func(b *builder) {
					for _, p := range products {
						p.record(b)
					}
				}}
				cases = append(cases, c)
				if of == tensorops.BFloat16 {
					return // as products of bfloat16 have it
				}
				half := slices.Clone(products)
				for i := range half {
					half[i].bf16 = true
				}
				c = Case{c.Name + " bf16", tensorops.KindMatMul, func(b *builder) {
					for _, p := range half {
						p.record(b)
					}
				}}
				cases = append(cases, c.in("bfloat16", tensorops.BFloat16))
			}
			add("variants", slices.Concat(p.variants(37, 65, 129), p.variants(1, 130, 192)))
			add("sizes", p.sweep([]int{1, 3, 17, 63, 64, 65, 130}))
			add("split", slices.Concat(p.split(70, 200, 600), p.split(3, 5, 2100), p.split(40, 64, 128)))
		}
	}
	return append(cases, Case{"copy/quantized", tensorops.KindCopy, quantized})
}

// quantized are copies to and from rows in 8 and 4 bits.
func quantized(b *builder) {
	for _, of := range frozenTypes[1:] {
		for _, s := range [][2]int{{0, 16}, {1, 1}, {3, 0}, {5, 7}, {3, 64}, {2, 65}, {37, 515}, {300, 128}} {
			q, wide, half := b.frozen(of, b.normal(s[0], s[1]), false), b.garbage(s[0], s[1]), b.half(s[0], s[1])
			b.Copy(wide, q)
			b.Copy(half, q)
			b.check(wide, "%v of %v", of, s)
			b.check(half, "%v of %v in bfloat16", of, s)
		}
		// Columns and rows of a matrix, into columns of another; rows that are stored apart; from bfloat16.
		q := b.frozen(of, b.normal(20, 200), false)
		whole, to := b.framed(5, 99)
		b.Copy(to, q.RowRange(7, 12).Columns(31, 130))
		b.check(whole, "columns of rows of %v", of)
		narrow := b.half(4, 200)
		b.Copy(narrow, b.normal(4, 200))
		b.Copy(q.RowRange(3, 7), narrow)
		wide := b.garbage(20, 200)
		b.Copy(wide, q)
		b.check(wide, "four of twenty rows of %v from bfloat16", of)
		// Blocks of zeros, of the smallest and the largest numbers, and with numbers that are none.
		special := make([]float32, 6*tensorops.QuantBlock)
		for i, v := range []float32{1e-45, 1e-44, 3e-43, 3.4e38, -3.4e38, 1} {
			special[tensorops.QuantBlock+i] = v
			special[2*tensorops.QuantBlock+i] = v * 1e-30
			special[(i/3+3)*tensorops.QuantBlock+i] = v
		}
		special[5*tensorops.QuantBlock+9] = float32(math.Inf(-1))
		q = b.frozen(of, b.floats(special, 1, len(special)), false)
		wide = b.garbage(1, len(special))
		b.Copy(wide, q)
		b.check(wide, "special numbers of %v", of)
	}
}
