package cuda

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

var moveLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindFill: fill,
	tensorops.KindCopy: copyTensor,
	tensorops.KindSpin: spin,
}

// maxGridY is the most blocks that a grid has along y.
const maxGridY = 65535

func fill(x *exec, o *tensorops.Op) error {
	a := o.Fill()
	n := a.T.Len()
	if n == 0 {
		return nil
	}
	bits := math.Float32bits(float32(a.Value))
	switch a.T.DType() {
	case tensorops.Float64:
		return launch(x, "fill8", x.over(n), &struct {
			to   uint64
			n    int64
			bits uint64
		}{address(a.T), int64(n), math.Float64bits(a.Value)})
	case tensorops.Int32:
		bits = uint32(int32(a.Value))
	}
	return launch(x, "fill4", x.over(n), &struct {
		to        uint64
		n         int64
		bits, pad uint32
	}{to: address(a.T), n: int64(n), bits: bits})
}

// copyArgs is copy_args of move.cu, and round_bf16_args of round.cu.
type copyArgs struct {
	to, from                         uint64
	rows, cols, toStride, fromStride int64
	aligned, _                       uint32
}

func copyTensor(x *exec, o *tensorops.Op) error {
	a := o.Copy()
	return copyTo(x, a.Dst, a.Src)
}

// copyTo starts to = from, of the same type, rows and columns.
func copyTo(x *exec, to, from tensorops.Tensor) error {
	if to.Len() == 0 {
		return nil
	}
	rows, cols, toStride, fromStride := to.Rows(), to.Cols(), to.Stride(), from.Stride()
	if to.Contiguous() && from.Contiguous() {
		rows, cols = 1, to.Len()
	}
	if to.DType() == tensorops.Float64 { // the kernel copies pieces of four bytes
		cols, toStride, fromStride = 2*cols, 2*toStride, 2*fromStride
	}
	a, b := address(to), address(from)
	whole := aligned(a, b)
	if rows > 1 && (toStride%4 != 0 || fromStride%4 != 0) {
		whole = 0
	}
	g := x.over(ceil(cols, 4))
	g.threads = min(g.threads, rowThreads(4*cols))
	g.y = min(rows, maxGridY)
	return launch(x, "copy", g, &copyArgs{a, b, int64(rows), int64(cols), int64(toStride), int64(fromStride), whole, 0})
}

// copyDense starts a copy of n elements of 4 bytes.
func copyDense(x *exec, to, from uint64, n int) error {
	return elementwise(x, "copy", n, &copyArgs{to: to, from: from, rows: 1, cols: int64(n), aligned: aligned(to, from)})
}

func spin(x *exec, o *tensorops.Op) error {
	return launch(x, "spin", grid{threads: 1}, &struct{ nanoseconds uint64 }{uint64(o.Spin().Time)})
}
