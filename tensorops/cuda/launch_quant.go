package cuda

import (
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/internal/quant"
)

// quantDecodeArgs is quant_decode_args of quant.cu.
type quantDecodeArgs struct {
	to, from                       uint64
	rows, cols, toStride, rowBytes int64
	first, scales                  int64
	nf4, half, aligned, _          uint32
}

// quantEncodeArgs is quant_encode_args of quant.cu.
type quantEncodeArgs struct {
	to, from                         uint64
	rows, cols, fromStride, rowBytes int64
	scales                           int64
	nf4, _                           uint32
}

// scalesAt is where a row of a quantized type has its scales.
func scalesAt(d tensorops.DType, cols int) int {
	return d.StoredBytes(1, cols) - 4*quant.Blocks(cols)
}

// decodeTo widens a quantized matrix to a place of float32 or bfloat16.
func decodeTo(x *exec, to matrixAt, from tensorops.Tensor) error {
	rows, cols, whole := from.Rows(), from.Cols(), stride(from)
	width := from.DType().StoredBytes(1, whole)
	g := x.over(ceil(cols, 8))
	g.threads = min(g.threads, rowThreads(4*ceil(cols, 2)))
	g.y = min(rows, maxGridY)
	return launch(x, "quant_decode", g, &quantDecodeArgs{
		to: to.address, from: address(from) + uint64(from.Offset()/whole*width),
		rows: int64(rows), cols: int64(cols), toStride: int64(to.stride), rowBytes: int64(width),
		first: int64(from.Offset() % whole), scales: int64(scalesAt(from.DType(), whole)),
		nf4: number2(from.DType() == tensorops.NF4), half: number2(to.dtype == tensorops.BFloat16),
		aligned: number2(to.address%mostAlignment == 0 && (rows == 1 || to.stride%8 == 0)),
	})
}

// encodeTo quantizes a matrix into whole rows.
func encodeTo(x *exec, to, from tensorops.Tensor) error {
	from, err := x.widened(from)
	if err != nil {
		return err
	}
	rows, cols := from.Rows(), from.Cols()
	width := to.DType().StoredBytes(1, cols)
	return launch(x, "quant_encode", x.over(rows*quant.Blocks(cols)), &quantEncodeArgs{
		to: address(to) + uint64(to.Offset()/cols*width), from: address(from),
		rows: int64(rows), cols: int64(cols), fromStride: int64(stride(from)), rowBytes: int64(width),
		scales: int64(scalesAt(to.DType(), cols)), nf4: number2(to.DType() == tensorops.NF4),
	})
}

// number2 is a condition for a kernel, without a sign.
func number2(is bool) uint32 { return uint32(number(is)) }

// plainB gives the product a B that its kernels take: quantized numbers, and bfloat16 in a product of
// float32, are widened to scratch memory.
func (p *product) plainB(x *exec) (err error) {
	if !p.B.DType().Quantized() && (p.BF16 || !isBFloat16(p.B)) {
		return nil
	}
	b, dtype := p.B, tensorops.Float32
	if p.BF16 && x.blas.isThere() {
		dtype = tensorops.BFloat16
	}
	p.B, err = tensorops.NewTensor(x.temporary, dtype, b.Rows(), b.Cols())
	if err != nil {
		return err
	}
	x.taken = append(x.taken, p.B.Buffer())
	return copyTo(x, p.B, b)
}
