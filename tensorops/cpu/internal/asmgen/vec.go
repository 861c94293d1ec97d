package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

// vecKernels lists the vectorised loops, each for both widths.
func vecKernels() []kernel {
	var ks []kernel
	for _, k := range []struct {
		name string
		emit func(a *isa)
		doc  string
	}{
		{"add", vecAdd, "dst = a + b."},
	} {
		ks = append(ks,
			kernel{"vec", k.name + "_avx2", k.doc, func(c *build.Context) { k.emit(avx2(c)) }},
			kernel{"vec", k.name + "_avx512", k.doc, func(c *build.Context) { k.emit(avx512(c)) }},
		)
	}
	return ks
}

func vecAdd(a *isa) {
	a.function("add", "(dst, a, b []float32)", "stores a + b.")
	dst, x, y, n := a.base("dst"), a.base("a"), a.base("b"), a.length("dst")
	a.each(n, func(at reg.Register, l lanes) {
		v := a.load(a.at(x, at), l)
		a.VADDPS(a.load(a.at(y, at), l), v, v)
		a.store(v, a.at(dst, at), l)
	})
	a.end()
}
