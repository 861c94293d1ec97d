package cpu

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// tokenAt checks the id of row n against the vocabulary.
func tokenAt(ids []int32, n, vocab int) int {
	id := int(ids[n])
	if id < 0 || id >= vocab {
		panic(fmt.Errorf("%w: row %d holds %d, the vocabulary has %d", tensorops.ErrToken, n, id, vocab))
	}
	return id
}

func embed(x *exec, lo, hi int) {
	out, w, ids := f32(x.op.T[0]), f32(x.op.T[1]), i32(x.op.T[2])
	c, vocab := x.op.T[1].Cols(), x.op.T[1].Rows()
	for n := lo; n < hi; n++ {
		id := tokenAt(ids, n, vocab)
		copy(out[n*c:(n+1)*c], w[id*c:])
	}
}

// embedGrad takes a range of columns, so that rows which share a token are added
// in ascending order by one core.
func embedGrad(x *exec, lo, hi int) {
	grad, dy, ids := f32(x.op.T[0]), f32(x.op.T[1]), i32(x.op.T[2])
	c, vocab := x.op.T[0].Cols(), x.op.T[0].Rows()
	for n := range ids {
		id := tokenAt(ids, n, vocab)
		sum := grad[id*c+lo : id*c+hi]
		x.dev.kernels.vec.Add(sum, sum, dy[n*c+lo:n*c+hi])
	}
}

func addPositions(x *exec, lo, hi int) {
	out, in, w := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2])
	c, period, first := x.op.T[2].Cols(), x.op.I[0], x.op.I[1]
	for n := lo; n < hi; n++ {
		x.dev.kernels.vec.Add(out[n*c:][:c], in[n*c:][:c], w[(first+n%period)*c:][:c])
	}
}

// positionsGrad takes a range of columns, as embedGrad.
func positionsGrad(x *exec, lo, hi int) {
	grad, dy := f32(x.op.T[0]), f32(x.op.T[1])
	c, period, first := x.op.T[0].Cols(), x.op.I[0], x.op.I[1]
	for n := range x.op.T[1].Rows() {
		p := first + n%period
		sum := grad[p*c+lo : p*c+hi]
		x.dev.kernels.vec.Add(sum, sum, dy[n*c+lo:n*c+hi])
	}
}
