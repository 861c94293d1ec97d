package cuda

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

var moveLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindFill:  fill,
	tensorops.KindCopy:  copyTensor,
	tensorops.KindSpin:  spin,
	tensorops.KindAwait: func(*exec, *tensorops.Op) error { return nil }, // collectives are carried out at once
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
	kernel := "fill4"
	switch a.T.DType() {
	case tensorops.BFloat16:
		kernel, bits = "fill2", uint32(tensorops.ToBFloat16(float32(a.Value)))
	case tensorops.Float64:
		return launch(x, "fill8", x.over(n), &struct {
			to   uint64
			n    int64
			bits uint64
		}{address(a.T), int64(n), math.Float64bits(a.Value)})
	case tensorops.Int32:
		bits = uint32(int32(a.Value))
	case tensorops.Uint8:
		return tensorops.ErrUnsupported
	}
	return launch(x, kernel, x.over(n), &struct {
		to        uint64
		n         int64
		bits, pad uint32
	}{to: address(a.T), n: int64(n), bits: bits})
}

// copyArgs is copy_args and copy2_args of move.cu, round_bf16_args and widen_bf16_args of
// round.cu.
type copyArgs struct {
	to, from                         uint64
	rows, cols, toStride, fromStride int64
	aligned, _                       uint32
}

func copyTensor(x *exec, o *tensorops.Op) error {
	a := o.Copy()
	if a.Dst.DType().Quantized() && a.Src.Len() > 0 {
		return encodeTo(x, a.Dst, a.Src)
	}
	return copyTo(x, a.Dst, a.Src)
}

// matrixAt is a place in memory for a matrix whose size is known.
type matrixAt struct {
	address uint64
	dtype   tensorops.DType
	stride  int
}

// copyTo starts to = from, of the same rows and columns, and of the same type or in float32
// and bfloat16.
func copyTo(x *exec, to, from tensorops.Tensor) error {
	return copyToPlace(x, matrixAt{address(to), to.DType(), stride(to)}, from)
}

func copyToPlace(x *exec, to matrixAt, from tensorops.Tensor) error {
	switch {
	case from.Len() == 0:
		return nil
	case from.DType().Quantized():
		return decodeTo(x, to, from)
	}
	rows, cols, toStride, fromStride := from.Rows(), from.Cols(), to.stride, stride(from)
	if toStride == cols && fromStride == cols {
		rows, cols = 1, from.Len()
	}
	kernel := "copy"
	toBytes, fromBytes := to.dtype.Size(), from.DType().Size()
	switch {
	case to.dtype != from.DType() && toBytes < fromBytes:
		kernel = "round_bf16"
	case to.dtype != from.DType():
		kernel = "widen_bf16"
	case to.dtype == tensorops.BFloat16:
		kernel = "copy2"
	case to.dtype == tensorops.Float64: // the kernel copies pieces of four bytes
		cols, toStride, fromStride = 2*cols, 2*toStride, 2*fromStride
		toBytes, fromBytes = toBytes/2, fromBytes/2
	}
	whole := fours(to.address, toBytes) && fours(address(from), fromBytes)
	if rows > 1 && (toStride%4 != 0 || fromStride%4 != 0) {
		whole = false
	}
	g := x.over(ceil(cols, 4))
	g.threads = min(g.threads, rowThreads(4*cols))
	g.y = min(rows, maxGridY)
	return launch(x, kernel, g, &copyArgs{to: to.address, from: address(from), rows: int64(rows), cols: int64(cols),
		toStride: int64(toStride), fromStride: int64(fromStride), aligned: uint32(number(whole))})
}

// fours reports whether four elements of so many bytes may be read at once at an address.
func fours(at uint64, bytes int) bool { return at%uint64(4*bytes) == 0 }

// copyDense starts a copy of n elements of 4 bytes.
func copyDense(x *exec, to, from uint64, n int) error {
	return elementwise(x, "copy", n, &copyArgs{to: to, from: from, rows: 1, cols: int64(n),
		aligned: uint32(number(fours(to, 4) && fours(from, 4)))})
}

func spin(x *exec, o *tensorops.Op) error {
	return launch(x, "spin", grid{threads: 1}, &struct{ nanoseconds uint64 }{uint64(o.Spin().Time)})
}
