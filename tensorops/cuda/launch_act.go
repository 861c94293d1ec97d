package cuda

import "github.com/troupe-ml/troupe/tensorops"

var actLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindGELU:       gelu,
	tensorops.KindGELUGrad:   geluGrad,
	tensorops.KindSwiGLU:     swiGLU,
	tensorops.KindSwiGLUGrad: swiGLUGrad,
	tensorops.KindRoPE:       rope,
	tensorops.KindDropout:    drop,
	tensorops.KindAdd:        add,
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
	return kernel + "_mixed"
}

// aligned reports to a kernel, as 0 or 1, whether four floats from each address on may be
// read at once. The address 0 stands for an operand that isn't there.
func aligned(addresses ...uint64) uint32 {
	for _, a := range addresses {
		if a%16 != 0 {
			return 0
		}
	}
	return 1
}

func gelu(x *exec, o *tensorops.Op) error {
	a := o.GELU()
	y, in, n := address(a.Y), address(a.X), a.Y.Len()
	return elementwise(x, "gelu", n, &struct {
		y, x         uint64
		n            int64
		aligned, pad uint32
	}{y: y, x: in, n: int64(n), aligned: aligned(y, in)})
}

func geluGrad(x *exec, o *tensorops.Op) error {
	a := o.GELUGrad()
	dx, dy, in, n := address(a.DX), address(a.DY), address(a.X), a.DX.Len()
	return elementwise(x, "gelu_grad", n, &struct {
		dx, dy, x    uint64
		n            int64
		aligned, pad uint32
	}{dx: dx, dy: dy, x: in, n: int64(n), aligned: aligned(dx, dy, in)})
}

func swiGLU(x *exec, o *tensorops.Op) error {
	a := o.SwiGLU()
	y, gate, up, n := address(a.Y), address(a.Gate), address(a.Up), a.Y.Len()
	return elementwise(x, "swiglu", n, &struct {
		y, gate, up  uint64
		n            int64
		aligned, pad uint32
	}{y: y, gate: gate, up: up, n: int64(n), aligned: aligned(y, gate, up)})
}

func swiGLUGrad(x *exec, o *tensorops.Op) error {
	a := o.SwiGLUGrad()
	dgate, dup, dy := address(a.DGate), address(a.DUp), address(a.DY)
	gate, up, n := address(a.Gate), address(a.Up), a.DGate.Len()
	return elementwise(x, "swiglu_grad", n, &struct {
		dgate, dup, dy, gate, up uint64
		n                        int64
		aligned, pad             uint32
	}{dgate: dgate, dup: dup, dy: dy, gate: gate, up: up, n: int64(n), aligned: aligned(dgate, dup, dy, gate, up)})
}

func add(x *exec, o *tensorops.Op) error {
	a := o.Add()
	return addTo(x, a.Out, a.A, a.B)
}

// addTo starts out = a + b.
func addTo(x *exec, out, a, b tensorops.Tensor) error {
	to, left, right, n := address(out), address(a), address(b), out.Len()
	return elementwise(x, "add", n, &struct {
		out, a, b    uint64
		n            int64
		aligned, pad uint32
	}{out: to, a: left, b: right, n: int64(n), aligned: aligned(to, left, right)})
}
