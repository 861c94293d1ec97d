package cpu

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// tokenAt checks the id of row n against the vocabulary.
func tokenAt(ids []int32, n, vocab int) int {
	id := int(ids[n])
	if id < 0 || id >= vocab {
		panic(fmt.Errorf("%w: row %d holds token %d, but the vocabulary has %d tokens", tensorops.ErrToken, n, id, vocab))
	}
	return id
}

func embed(x *exec, lo, hi int) {
	a := x.op.Embed()
	out, w, ids := x.values(0, a.Out), x.values(1, a.Weight), i32(a.IDs)
	c, vocab := a.Weight.Cols(), a.Weight.Rows()
	for n := lo; n < hi; n++ {
		id := tokenAt(ids, n, vocab)
		x.convert(out, n*c, w, id*c, c)
	}
}

// embedGrad takes a range of columns, so that rows which share a token are added
// in ascending order by one core.
func embedGrad(x *exec, lo, hi int) {
	a := x.op.EmbedGrad()
	grad, dy, ids := f32(a.Grad), x.values(0, a.DY), i32(a.IDs)
	c, vocab := a.Grad.Cols(), a.Grad.Rows()
	for n := range ids {
		id := tokenAt(ids, n, vocab)
		sum := grad[id*c+lo : id*c+hi]
		x.dev.kernels.vec.Add(sum, sum, x.get(dy, n*c+lo, n*c+hi))
	}
}

func addPositions(x *exec, lo, hi int) {
	a := x.op.AddPositions()
	out, in, w, c := x.values(0, a.Out), x.values(1, a.X), x.values(2, a.Weight), a.Weight.Cols()
	for n := lo; n < hi; n++ {
		sum, at := x.room(out, n*c, (n+1)*c), (a.First+n%a.Period)*c
		x.dev.kernels.vec.Add(sum, x.get(in, n*c, (n+1)*c), x.get(w, at, at+c))
		x.put(out, n*c, sum)
	}
}

// positionsGrad takes a range of columns, as embedGrad.
func positionsGrad(x *exec, lo, hi int) {
	a := x.op.PositionsGrad()
	grad, dy, c := f32(a.Grad), x.values(0, a.DY), a.Grad.Cols()
	for n := range a.DY.Rows() {
		p := a.First + n%a.Period
		sum := grad[p*c+lo : p*c+hi]
		x.dev.kernels.vec.Add(sum, sum, x.get(dy, n*c+lo, n*c+hi))
	}
}
