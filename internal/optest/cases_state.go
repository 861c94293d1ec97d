package optest

import (
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// stateForms are the forms of an optimizer's state.
var stateForms = []struct {
	name       string
	dtype      tensorops.DType
	root, near bool
}{
	{"bfloat16", tensorops.BFloat16, false, false},
	{"bfloat16 nearest", tensorops.BFloat16, false, true},
	{"uint8", tensorops.Uint8, false, false},
	{"uint8 nearest", tensorops.Uint8, false, true},
	{"uint8 root", tensorops.Uint8, true, false},
	{"uint8 root nearest", tensorops.Uint8, true, true},
}

// stateCases store an optimizer's state and read it.
func stateCases() []Case {
	var all []Case
	for i, f := range stateForms {
		all = append(all, Case{"narrow_state/" + f.name, tensorops.KindNarrowState, func(b *builder) {
			for _, n := range []int{0, 1, 255, 256, 257, 20_011} {
				b.state(f.dtype, f.root, f.near, b.numbers(n, 0, 1e-3), uint64(7*i*n))
			}
		}}, Case{"narrow_state/" + f.name + " special numbers", tensorops.KindNarrowState, func(b *builder) {
			const block = tensorops.StateBlock
			x, largest := make([]float32, 4*block), float32(3e38)
			if f.root { // its square is finite
				largest = 1.8e19
			}
			for i, v := range []float32{1, 0, float32(math.Copysign(0, -1)), 1e-7, 3e-7, 1e-40, 1e-30, 0.5, 0.9999999, largest} {
				x[i], x[block+i], x[2*block+i] = v, v*1e-30, -v
			}
			b.state(f.dtype, f.root, f.near, x, 1<<40+3)
		}})
	}
	return append(all, Case{"widen_state/forms", tensorops.KindWidenState, func(b *builder) {
		for _, f := range stateForms {
			for _, n := range []int{0, 1, 255, 256, 257, 20_011} {
				to, scales := b.state(f.dtype, f.root, f.near, b.numbers(n, 0, 1e-3), 0)
				x := b.garbage32(n)
				b.WidenState(x, to, scales, f.root)
				b.check(x, "%s of %d", f.name, n)
			}
		}
	}})
}

// state stores numbers, or their squares for a root, and checks what is stored.
func (b *builder) state(dtype tensorops.DType, root, nearest bool, x []float32, first uint64) (to, scales tensorops.Tensor) {
	if root {
		for i, v := range x {
			x[i] = v * v
		}
	}
	to = b.Alloc(dtype, len(x))
	b.tensors = append(b.tensors, to)
	if dtype == tensorops.Uint8 {
		scales = b.garbage32(tensorops.StateScales(len(x)))
	}
	b.NarrowState(to, scales, b.floats(x, len(x)), tensorops.NarrowStateOpts{Root: root, Nearest: nearest, Key: rng.NewKey(1, 2), Update: 3,
		First: first})
	b.check(to, "%d elements in %v", len(x), dtype)
	if scales.Valid() {
		b.check(scales, "the scales of %d elements", len(x))
	}
	return to, scales
}
