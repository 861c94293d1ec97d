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

// weighRows weighs the rows of each token, or its own rows up to the last offset.
func (x *exec) weighRows() error {
	a := x.op.WeighRows()
	if a.Places.Valid() {
		return x.parallel(a.Places.Rows(), rowGrain(a.Places.Cols()*a.Rows.Cols()), weighRowsRange)
	}
	offsets := i32(a.Offsets)
	if err := tensorops.CheckSourceOffsets(offsets, a.Rows.Rows(), 1); err != nil {
		return err
	}
	return x.parallel(int(offsets[len(offsets)-1]), rowGrain(a.Rows.Cols()), weighRowsRange)
}

// weighRowsRange takes a range of tokens, whose rows nobody else has, or of rows.
func weighRowsRange(x *exec, lo, hi int) {
	a := x.op.WeighRows()
	rows, drows, vec := x.values(0, a.Rows), x.values(1, a.DRows), x.dev.kernels.vec
	weights, dweights := f32(a.Weights), f32(a.DWeights)
	k, c := 1, a.Rows.Cols()
	var places []int32
	if a.Places.Valid() {
		places, k = i32(a.Places), a.Places.Cols()
	}
	for pair := lo * k; pair < hi*k; pair++ {
		at := pair * c
		if places != nil {
			at = placeAt(places, pair, a.Rows.Rows()) * c
		}
		r, d, w := x.get(rows, at, at+c), x.get(drows, at, at+c), weights[pair]
		dweights[pair] = x.rowDot(r, d)
		vec.Scaled(r, r, w)
		x.put(rows, at, r)
		vec.Scaled(d, d, w)
		x.put(drows, at, d)
	}
}

// sourceOffsets says where the rows of each expert and source begin.
func (x *exec) sourceOffsets() error {
	a := x.op.SourceOffsets()
	t, err := tensorops.ReadSources(i32(a.Table), a.Table.Rows())
	if err == nil {
		t.Offsets(i32(a.Offsets), a.Rank)
	}
	return err
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
