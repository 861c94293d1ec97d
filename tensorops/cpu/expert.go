package cpu

import "github.com/troupe-ml/troupe/tensorops"

// placeAt is the row of a pair. A row that does not exist fails the operation.
func placeAt(places []int32, pair, rows int) int {
	if err := tensorops.CheckPlace(pair, places[pair], rows); err != nil {
		panic(err)
	}
	return int(places[pair])
}

// dispatch takes a range of the rows of x.
func dispatch(x *exec, lo, hi int) {
	a := x.op.Dispatch()
	rows, in, places := x.values(0, a.Rows), x.values(1, a.X), i32(a.Places)
	k, c := a.Places.Cols(), a.X.Cols()
	for pair := lo * k; pair < hi*k; pair++ {
		x.convert(rows, placeAt(places, pair, a.Rows.Rows())*c, in, pair/k*c, c)
	}
}

// combine takes a range of the rows of y.
func combine(x *exec, lo, hi int) {
	a := x.op.Combine()
	y, rows, places, weights := x.values(0, a.Y), x.values(1, a.Rows), i32(a.Places), optional(a.Weights)
	k, c, vec := a.Places.Cols(), a.Y.Cols(), x.dev.kernels.vec
	for n := lo; n < hi; n++ {
		out := x.room(y, n*c, (n+1)*c)
		for j := range k {
			pair := n*k + j
			at := placeAt(places, pair, a.Rows.Rows()) * c
			row := x.get(rows, at, at+c)
			switch {
			case weights != nil && j == 0:
				vec.Scaled(out, row, weights[pair])
			case weights != nil:
				vec.ScaledPlus(out, row, weights[pair], out)
			case j == 0:
				copy(out, row)
			default:
				vec.Add(out, out, row)
			}
		}
		x.put(y, n*c, out)
	}
}

// weighRows takes a range of tokens, whose rows nobody else has.
func weighRows(x *exec, lo, hi int) {
	a := x.op.WeighRows()
	rows, drows, places, vec := x.values(0, a.Rows), x.values(1, a.DRows), i32(a.Places), x.dev.kernels.vec
	weights, dweights := f32(a.Weights), f32(a.DWeights)
	k, c := a.Places.Cols(), a.Rows.Cols()
	for pair := lo * k; pair < hi*k; pair++ {
		at := placeAt(places, pair, a.Rows.Rows()) * c
		r, d, w := x.get(rows, at, at+c), x.get(drows, at, at+c), weights[pair]
		dweights[pair] = x.rowDot(r, d)
		vec.Scaled(r, r, w)
		x.put(rows, at, r)
		vec.Scaled(d, d, w)
		x.put(drows, at, d)
	}
}

// rowDot is Σ a·b, in parts of a fixed length.
func (x *exec) rowDot(a, b []float32) float32 {
	const part = 1024
	sum := 0.0
	for len(a) > part {
		sum += float64(x.dev.kernels.vec.Dot(a[:part], b[:part]))
		a, b = a[part:], b[part:]
	}
	return float32(sum + float64(x.dev.kernels.vec.Dot(a, b)))
}
