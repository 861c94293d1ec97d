package cpu

import (
	"unsafe"

	"github.com/troupe-ml/troupe/tensorops"
)

// followers are the operations behind a matrix product that it carries out itself: GELU and its gradient,
// which work on elements, so that they may go over a block of C as soon as its sums are complete, while it is in
// the cache. The bits are those of one operation after the other.
//
// That takes that no two of what they and the product touch share memory, but for operands that are
// the same elements in the same places. It is done for float32 alone: with bfloat16, and for SwiGLU, whose other
// operands then come from memory by short rows, a step was 1 to 2 % slower.
func followers(ops []tensorops.Op) []tensorops.Op {
	a, then := ops[0].MatMul(), ops[1:]
	if a.C.DType() != tensorops.Float32 || !a.C.Contiguous() || a.Symmetric {
		return nil
	}
	touched := []tensorops.Tensor{a.C}
	for n := range then {
		switch op := &then[n]; op.Kind {
		case tensorops.KindGELU, tensorops.KindGELUGrad:
			var free bool
			if touched, free = touches(touched, op, a); !free {
				return then[:n]
			}
		default:
			return then[:n]
		}
	}
	return then
}

// touches adds the operands of a follower to the tensors that those before it touch, and C. It is false if
// that would be seen.
func touches(touched []tensorops.Tensor, op *tensorops.Op, a tensorops.MatMulArgs) ([]tensorops.Tensor, bool) {
	for _, t := range op.T {
		if !t.Valid() {
			continue
		}
		if t.Len() != a.C.Len() {
			return touched, false
		}
		for _, read := range []tensorops.Tensor{a.A, a.B, a.Bias, a.Packed} {
			if meet(t, read) {
				return touched, false
			}
		}
		for _, other := range touched {
			if meet(t, other) && !sameElements(t, other) {
				return touched, false
			}
		}
		touched = append(touched, t)
	}
	return touched, true
}

// sameElements reports whether two tensors have the same elements in the same places.
func sameElements(t, u tensorops.Tensor) bool {
	return t.DType() == u.DType() && t.Len() == u.Len() && t.Contiguous() && u.Contiguous() && address(t) == address(u)
}

// meet reports whether two tensors have memory in common, where the gaps between rows count.
func meet(t, u tensorops.Tensor) bool {
	return address(t) < address(u)+extent(u) && address(u) < address(t)+extent(t)
}

// address and extent are where a tensor's memory begins, and how many bytes it has; 0 for none.
func address(t tensorops.Tensor) uintptr {
	if !t.Valid() {
		return 0
	}
	from, _ := t.ByteRange()
	return uintptr(unsafe.Pointer(unsafe.SliceData(t.Buffer().Mem))) + uintptr(from)
}

func extent(t tensorops.Tensor) uintptr {
	if !t.Valid() {
		return 0
	}
	from, to := t.ByteRange()
	return uintptr(to - from)
}

// follow carries out what follows the product on a block of C whose sums are complete.
func (p *product) follow(x *exec, i, j, m, n int) {
	s := span{first: i*p.n + j, n: n, rows: m, apart: p.n}
	for k := range p.then {
		switch op := &p.then[k]; op.Kind {
		case tensorops.KindGELU:
			x.gelu(op.GELU(), s)
		case tensorops.KindGELUGrad:
			x.geluGrad(op.GELUGrad(), s)
		}
	}
}

// after carries out what follows a product that is not made block by block.
func (x *exec) after(then []tensorops.Op) error {
	for i := range then {
		x.op = &then[i]
		if err := x.do(x.op); err != nil {
			return err
		}
	}
	return nil
}
