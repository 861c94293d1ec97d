package optest

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// linear is a matrix product with a GELU behind it, which a device may compute as one: the
// layer of a perceptron.
type linear struct {
	matmul
	reuse   bool // y takes the memory of A, which is as large, if the arena gives it out again
	inPlace bool // y is C
	part    bool // the GELU is of all rows but the last
}

func (p linear) String() string {
	s := p.matmul.String()
	if p.reuse {
		s += ", y where A was"
	}
	if p.inPlace {
		s += ", y in place"
	}
	if p.part {
		s += ", y of a part"
	}
	return s
}

// record multiplies and takes the GELU, of which the operations ask for the form of the
// hyperbolic tangent. That of the error function differs from it by up to 5e-4, where x is near
// ±2.5: elements of C are normal deviates times √k, so that many of them are there.
func (p linear) record(b *builder) {
	rows, cols := p.k, p.n
	if p.transB {
		rows, cols = cols, rows
	}
	var a tensorops.Tensor
	if p.reuse { // it is freed before y is there, and not at the end
		a = b.Alloc(tensorops.Float32, p.m, p.k)
		b.Upload(a, tensorops.HostBytes(b.numbers(p.m*p.k, 0, 1)))
	} else {
		a = b.normal(p.m, p.k)
	}
	w := b.normal(rows, cols)
	o := tensorops.MatMulOpts{TransB: p.transB, Accumulate: p.accumulate, BF16: p.bf16}
	var c tensorops.Tensor
	if p.accumulate { // to float32 alone
		c = b.single(p.m, p.n)
	} else {
		c = b.garbage(p.m, p.n)
	}
	if p.bias {
		o.Bias = b.single(p.n)
	}
	if p.packed {
		o.Packed = b.packed(tensorops.PackedLen(p.k, p.n), p.bf16)
		b.Pack(o.Packed, w, p.transB, p.bf16)
	}
	var y tensorops.Tensor
	switch {
	case p.inPlace:
		y = c
	case !p.reuse:
		y = b.garbage(p.m, p.n)
	}
	b.MatMul(c, a, w, o)
	if p.reuse {
		b.Free(a)
		y = b.Alloc(tensorops.Float32, p.m, p.n)
		b.tensors = append(b.tensors, y)
	}
	of := p.m
	if p.part {
		of--
	}
	b.GELU(y.RowRange(0, of), c.RowRange(0, of))
	if !p.inPlace {
		b.check(c, "C of %v", p).summed(p.k)
	}
	checked := b.check(y, "y of %v", p).summed(p.k).loosen(2) // the slope of GELU, and its own error
	if c.DType() == tensorops.BFloat16 {
		// C may be the neighbour of what the oracle has, or not be rounded where both are one: an ulp
		// of it is 2^16 of float32's, of the largest of some thousand elements.
		checked.loosen(1 << 16)
	}
}

// fusedCases are products with what devices may do along with them. A bias and what is added to
// are in linearCases, alone.
func fusedCases() []Case {
	var cases []Case
	for _, form := range []struct {
		name string
		is   matmul
	}{
		{"NN", matmul{}},
		{"NT", matmul{transB: true}},
		{"NN packed", matmul{packed: true}},
		{"NN bf16", matmul{bf16: true}},
		{"NT bf16", matmul{bf16: true, transB: true}},
		{"NT bf16 packed", matmul{bf16: true, transB: true, packed: true}},
	} {
		c := Case{"matmul/" + form.name + "/then gelu", tensorops.KindMatMul, func(b *builder) {
			for _, p := range linears(form.is) {
				p.record(b)
			}
		}}
		cases = append(cases, c)
		if form.is.bf16 {
			cases = append(cases, c.in("bfloat16", tensorops.BFloat16), c.in("mixed", tensorops.BFloat16, tensorops.Float32, tensorops.BFloat16))
		}
	}
	return append(cases, Case{"matmul/then gelu of what it was not", tensorops.KindMatMul, geluOfAnother})
}

// linears are what can be asked of a form: rows of even and uneven lengths, of which a library
// may want multiples, without a bias, with one, and added to what is there.
func linears(of matmul) []linear {
	of.bias = true
	var all []linear
	for _, size := range [][3]int{{10, 24, 24}, {33, 64, 40}, {7, 23, 31}, {1, 16, 16}, {5, 8, 300}} {
		of.m, of.n, of.k = size[0], size[1], size[2]
		all = append(all, linear{matmul: of})
	}
	of.m, of.n, of.k = 10, 24, 24
	plain, added := of, of
	plain.bias = false
	added.bias, added.accumulate = false, true
	all = append(all, linear{matmul: plain}, linear{matmul: added}, linear{matmul: of, inPlace: true}, linear{matmul: of, part: true})
	if !of.bf16 { // A is float32 there
		all = append(all, linear{matmul: of, reuse: true})
	}
	return all
}

// geluOfAnother has operations behind a product that look like its GELU: of another matrix, and
// of what the product has written meanwhile.
func geluOfAnother(b *builder) {
	const n = 24
	x, w, bias, other := b.normal(n, n), b.normal(n, n), b.single(n), b.normal(n, n)
	c, y := b.garbage(n, n), b.garbage(n, n)
	b.MatMul(c, x, w, tensorops.MatMulOpts{Bias: bias})
	b.GELU(y, other)
	b.check(c, "C").summed(n)
	b.check(y, "the GELU of another matrix").scaled(1)
	z, u := b.garbage(n, n), b.garbage(n, n)
	b.MatMul(z, x, w, tensorops.MatMulOpts{Bias: bias})
	b.Fill(z, math.Pi)
	b.GELU(u, z)
	b.check(u, "the GELU of what was filled in between").scaled(1)
}
