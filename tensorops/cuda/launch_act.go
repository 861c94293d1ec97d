package cuda

import "github.com/troupe-ml/troupe/tensorops"

var actLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindGELU:        gelu,
	tensorops.KindSwiGLU:      swiGLU,
	tensorops.KindGate:        gate,
	tensorops.KindGateGrad:    gateGrad,
	tensorops.KindAct:         act,
	tensorops.KindActGrad:     actGrad,
	tensorops.KindSoftCap:     softCap,
	tensorops.KindSoftCapGrad: softCapGrad,
	tensorops.KindRoPE:        rope,
	tensorops.KindAdd:         add,
	tensorops.KindAddScaled:   addScaled,
	tensorops.KindJitter:      jitter,
}

// eightwise starts a kernel of which each thread takes eight of n elements, once: how many blocks a
// multiprocessor has room for differs from kernel to kernel, and of a grid that is a few blocks more than
// all have room for, those few would go through their elements when the others are done.
func eightwise[A any](x *exec, kernel string, n int, args *A) error {
	if n == 0 {
		return nil
	}
	const threads = 128
	return launch(x, kernel, grid{x: ceil(ceil(n, 8), threads), threads: threads}, args)
}

// elementwise starts a kernel of which each thread takes four of n elements at a time.
func elementwise[A any](x *exec, kernel string, n int, args *A) error {
	if n == 0 {
		return nil
	}
	return launch(x, kernel, x.over(ceil(n, 4)), args)
}

// alignedFours reports to a kernel, as 0 or 1, whether four elements of each operand from its
// beginning on may be read at once. None counts as such.
func alignedFours(operands ...tensorops.Tensor) uint32 {
	for _, t := range operands {
		if !fours(address(t), t.DType().Size()) {
			return 0
		}
	}
	return 1
}

// halves tells a kernel which operands are bfloat16, by a bit for each.
func halves(operands ...tensorops.Tensor) uint32 {
	bits := uint32(0)
	for i, t := range operands {
		if isBFloat16(t) {
			bits |= 1 << i
		}
	}
	return bits
}

// mixed is the form of a kernel for operands of which some may be bfloat16.
func mixed(kernel string, halves uint32) string {
	if halves == 0 {
		return kernel
	}
	return kernel + mixedForm
}

// mixedForm ends the name of a kernel's mixed form: see FORMS in four.cuh.
const mixedForm = "_mixed"

func gelu(x *exec, o *tensorops.Op) error {
	a := o.GELU()
	n, half := a.Y.Len(), halves(a.Y, a.X)
	return eightwise(x, "gelu", n, &struct {
		y, x            uint64
		n               int64
		aligned, halves uint32
	}{y: address(a.Y), x: address(a.X), n: int64(n), aligned: alignedEights(a.Y, a.X), halves: half})
}

// geluGrads carries out a GELU's gradient, and with it the GELU if that is made again next.
func geluGrads(x *exec, ops []tensorops.Op) (int, error) {
	a, done := ops[0].GELUGrad(), 1
	var y tensorops.Tensor
	if len(ops) > 1 && ops[1].Kind == tensorops.KindGELU {
		if again := ops[1].GELU(); same(again.X, a.X) && elementsApart(again.Y, []tensorops.Tensor{a.DX, a.DY}, a.X) {
			y, done = again.Y, 2
		}
	}
	n, half := a.DX.Len(), halves(a.DX, a.DY, a.X, y)
	return done, eightwise(x, "gelu_grad", n, &struct {
		dx, dy, x, y    uint64
		n               int64
		aligned, halves uint32
	}{dx: address(a.DX), dy: address(a.DY), x: address(a.X), y: address(y), n: int64(n), aligned: alignedEights(a.DX, a.DY, a.X, y),
		halves: half})
}

// elementsApart reports whether a kernel may write an element of y as soon as it has read that element of
// each operand: y is apart from some, and may be one of the others.
func elementsApart(y tensorops.Tensor, from []tensorops.Tensor, in ...tensorops.Tensor) bool {
	for _, t := range from {
		if extentOf(t).meets(extentOf(y)) {
			return false
		}
	}
	for _, t := range in {
		if extentOf(t).meets(extentOf(y)) && !same(t, y) {
			return false
		}
	}
	return true
}

func swiGLU(x *exec, o *tensorops.Op) error {
	a := o.SwiGLU()
	n, half := a.Y.Len(), halves(a.Y, a.Gate, a.Up)
	return eightwise(x, "swiglu", n, &struct {
		y, gate, up     uint64
		n               int64
		aligned, halves uint32
	}{y: address(a.Y), gate: address(a.Gate), up: address(a.Up), n: int64(n), aligned: alignedEights(a.Y, a.Gate, a.Up), halves: half})
}

// swiGLUGrads is geluGrads for SwiGLU.
func swiGLUGrads(x *exec, ops []tensorops.Op) (int, error) {
	a, done := ops[0].SwiGLUGrad(), 1
	var y tensorops.Tensor
	if len(ops) > 1 && ops[1].Kind == tensorops.KindSwiGLU {
		again := ops[1].SwiGLU()
		if same(again.Gate, a.Gate) && same(again.Up, a.Up) && elementsApart(again.Y, []tensorops.Tensor{a.DGate, a.DUp, a.DY}, a.Gate, a.Up) {
			y, done = again.Y, 2
		}
	}
	n, half := a.DGate.Len(), halves(a.DGate, a.DUp, a.DY, a.Gate, a.Up, y)
	return done, eightwise(x, "swiglu_grad", n, &struct {
		dgate, dup, dy, gate, up, y uint64
		n                           int64
		aligned, halves             uint32
	}{dgate: address(a.DGate), dup: address(a.DUp), dy: address(a.DY), gate: address(a.Gate), up: address(a.Up), y: address(y), n: int64(n),
		aligned: alignedEights(a.DGate, a.DUp, a.DY, a.Gate, a.Up, y), halves: half})
}

func add(x *exec, o *tensorops.Op) error {
	a := o.Add()
	return addTo(x, a.Out, a.A, a.B)
}

// addTo starts out = a + b.
func addTo(x *exec, out, a, b tensorops.Tensor) error {
	n, half := out.Len(), halves(out, a, b)
	return eightwise(x, "add", n, &struct {
		out, a, b       uint64
		n               int64
		aligned, halves uint32
	}{out: address(out), a: address(a), b: address(b), n: int64(n), aligned: alignedEights(out, a, b), halves: half})
}
