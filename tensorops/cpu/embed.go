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

// starts are where the documents of rows start; none: all at 0.
type starts []int32

func startsOf(t tensorops.Tensor) starts {
	if !t.Valid() {
		return nil
	}
	return i32(t)
}

func (s starts) at(row int) int {
	if s == nil {
		return 0
	}
	return int(s[row])
}

// of are the starts of a sequence of that many rows.
func (s starts) of(sequence, rows int) []int32 {
	if s == nil {
		return nil
	}
	return s[sequence*rows:][:rows]
}

func addPositions(x *exec, lo, hi int) {
	a := x.op.AddPositions()
	out, in, w, c := x.values(0, a.Out), x.values(1, a.X), x.values(2, a.Weight), a.Weight.Cols()
	starts := startsOf(a.Starts)
	for n := lo; n < hi; n++ {
		sum, at := x.room(out, n*c, (n+1)*c), a.Row(n, starts.at(n), a.Weight.Rows())*c
		x.dev.kernels.vec.Add(sum, x.get(in, n*c, (n+1)*c), x.get(w, at, at+c))
		x.put(out, n*c, sum)
	}
}

// positionsGrad takes a range of columns, as embedGrad.
func positionsGrad(x *exec, lo, hi int) {
	a := x.op.PositionsGrad()
	grad, dy, c, starts := f32(a.Grad), x.values(0, a.DY), a.Grad.Cols(), startsOf(a.Starts)
	for n := range a.DY.Rows() {
		p := a.Row(n, starts.at(n), a.Grad.Rows())
		sum := grad[p*c+lo : p*c+hi]
		x.dev.kernels.vec.Add(sum, sum, x.get(dy, n*c+lo, n*c+hi))
	}
}
