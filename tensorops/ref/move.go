package ref

import (
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// fill: t = value.
func fill(op *tensorops.Op) {
	a := op.Fill()
	if a.T.DType() == tensorops.Int32 {
		elements := ids(a.T)
		for i := range elements {
			elements[i] = int32(a.Value)
		}
		return
	}
	elements := Values(a.T)
	for i := range elements {
		elements[i] = a.Value
	}
}

// copyTensor: dst = src.
func copyTensor(op *tensorops.Op) {
	a := op.Copy()
	dst, src := a.Dst, a.Src
	if dst.DType() == tensorops.Int32 {
		for i := range dst.Rows() {
			copy(ids(dst.RowRange(i, i+1)), ids(src.RowRange(i, i+1)))
		}
		return
	}
	if dst.DType().Quantized() {
		quantize(dst, src)
		return
	}
	to, from := matrixOf(dst), matrixOf(src)
	for i := range to.rows {
		for j := range to.cols {
			*to.at(i, j) = *from.at(i, j)
		}
	}
}

// upload: t = the host's numbers, of which float32 become float64.
func upload(op *tensorops.Op) {
	a := op.Upload()
	switch a.Dst.DType() {
	case tensorops.Int32:
		copy(ids(a.Dst), tensorops.HostNumbers[int32](a.Host))
	case tensorops.Float64:
		copy(Values(a.Dst), tensorops.HostNumbers[float64](a.Host))
	case tensorops.BFloat16:
		elements := Values(a.Dst)
		for i, bits := range tensorops.HostNumbers[uint16](a.Host) {
			elements[i] = float64(tensorops.FromBFloat16(bits))
		}
	case tensorops.Uint8:
		elements := Values(a.Dst)
		for i, v := range a.Host {
			elements[i] = float64(v)
		}
	case tensorops.Float32:
		elements := Values(a.Dst)
		for i, v := range tensorops.HostNumbers[float32](a.Host) {
			elements[i] = float64(v)
		}
	}
}

// fetch: the host's numbers = t, rounded to float32 or bfloat16 where that is t's type.
func fetch(op *tensorops.Op) {
	a := op.Fetch()
	switch a.Src.DType() {
	case tensorops.Int32:
		copy(tensorops.HostNumbers[int32](a.Host), ids(a.Src))
	case tensorops.Float64:
		copy(tensorops.HostNumbers[float64](a.Host), Values(a.Src))
	case tensorops.BFloat16:
		host := tensorops.HostNumbers[uint16](a.Host)
		for i, v := range Values(a.Src) {
			host[i] = tensorops.ToBFloat16(float32(v))
		}
	case tensorops.Uint8:
		for i, v := range Values(a.Src) {
			a.Host[i] = uint8(v)
		}
	case tensorops.Float32:
		host := tensorops.HostNumbers[float32](a.Host)
		for i, v := range Values(a.Src) {
			host[i] = float32(v)
		}
	}
}

// collective leaves it to the group and waits for it. What the group reads and writes is float64: it takes
// the type for the memory's.
func collective(op *tensorops.Op) error {
	done := make(chan error, 1)
	a, stored := op.Collective(), *op
	a.Dst, a.Src = wide(a.Dst), wide(a.Src)
	a.Put(&stored)
	op.Group.Start(&stored, func(err error) { done <- err })
	return <-done
}

// wide is a tensor with the type that its elements are stored in.
func wide(t tensorops.Tensor) tensorops.Tensor {
	if !t.Valid() || t.DType() == tensorops.Int32 {
		return t
	}
	return t.As(tensorops.Float64)
}

// spin keeps a core busy.
func spin(op *tensorops.Op) {
	for end := time.Now().Add(op.Spin().Time); time.Now().Before(end); {
	}
}
