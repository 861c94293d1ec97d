package ref

import (
	"time"

	"github.com/troupe-ml/troupe/tensorops"
)

// fill: t = value.
func fill(op *tensorops.Op) {
	t, value := op.T[0], op.F[0]
	if t.DType() == tensorops.Int32 {
		elements := ids(t)
		for i := range elements {
			elements[i] = int32(value)
		}
		return
	}
	elements := Values(t)
	for i := range elements {
		elements[i] = value
	}
}

// copyTensor: dst = src.
func copyTensor(op *tensorops.Op) {
	dst, src := op.T[0], op.T[1]
	if dst.DType() == tensorops.Int32 {
		for i := range dst.Rows() {
			copy(ids(dst.RowRange(i, i+1)), ids(src.RowRange(i, i+1)))
		}
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
	switch t := op.T[0]; t.DType() {
	case tensorops.Int32:
		copy(ids(t), tensorops.HostNumbers[int32](op.Host))
	case tensorops.Float64:
		copy(Values(t), tensorops.HostNumbers[float64](op.Host))
	case tensorops.Float32:
		elements := Values(t)
		for i, v := range tensorops.HostNumbers[float32](op.Host) {
			elements[i] = float64(v)
		}
	}
}

// fetch: the host's numbers = t, rounded to float32 where that is t's type.
func fetch(op *tensorops.Op) {
	switch t := op.T[0]; t.DType() {
	case tensorops.Int32:
		copy(tensorops.HostNumbers[int32](op.Host), ids(t))
	case tensorops.Float64:
		copy(tensorops.HostNumbers[float64](op.Host), Values(t))
	case tensorops.Float32:
		host := tensorops.HostNumbers[float32](op.Host)
		for i, v := range Values(t) {
			host[i] = float32(v)
		}
	}
}

// allReduce leaves the sum to the group and waits for it.
func allReduce(op *tensorops.Op) error {
	done := make(chan error, 1)
	op.Group.Start(op, func(err error) { done <- err })
	return <-done
}

// spin keeps a core busy.
func spin(op *tensorops.Op) {
	for end := time.Now().Add(time.Duration(op.I[0])); time.Now().Before(end); {
	}
}
