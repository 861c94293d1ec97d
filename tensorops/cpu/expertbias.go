package cpu

import "github.com/troupe-ml/troupe/tensorops"

// groupedColSum adds up the rows of each expert. An expert's rows are added in blocks of sumBlock from its first row on, so a sum
// has the same bits wherever the rows are.
func (x *exec) groupedColSum() error {
	a := x.op.GroupedColSum()
	offsets := i32(a.Offsets)
	if err := tensorops.CheckSourceOffsets(offsets, a.X.Rows(), a.Sources); err != nil {
		return err
	}
	if a.Weights.Valid() { // by row
		x.partial = scratch(&x.partial, a.X.Rows())
		if a.Places.Valid() {
			clear(x.partial)
			places := i32(a.Places)
			for pair, w := range f32(a.Weights) {
				x.partial[placeAt(places, pair, a.X.Rows())] = float64(w)
			}
		} else {
			for row, w := range f32(a.Weights)[:offsets[len(offsets)-1]] {
				x.partial[row] = float64(w)
			}
		}
	}
	return x.parallel((len(offsets)-1)/max(a.Sources, 1), 1, groupedColSums)
}

// groupedColSums takes a range of experts.
func groupedColSums(x *exec, lo, hi int) {
	a := x.op.GroupedColSum()
	in, offsets, sums, c, vec := x.values(0, a.X), i32(a.Offsets), f32(a.Sum), a.X.Cols(), x.dev.kernels.vec
	room := scratch(&x.rows, 2*c)
	total, block := room[:c], room[c:]
	for e := lo; e < hi; e++ {
		at := offsets[e*max(a.Sources, 1)+a.Source:]
		from, to := int(at[0]), int(at[1])
		if from == to {
			continue
		}
		clear(total)
		for r0 := from; r0 < to; r0 += sumBlock {
			r1 := min(r0+sumBlock, to)
			clear(block)
			if a.Weights.Valid() {
				for r := r0; r < r1; r++ {
					vec.ScaledPlus(block, x.get(in, r*c, (r+1)*c), float32(x.partial[r]), block)
				}
			} else {
				fewRows(r0, r1, func(r0, r1 int) { vec.ColSum(block, x.get(in, r0*c, r1*c)) }, in)
			}
			vec.Add(total, total, block)
		}
		out := sums[e*c:][:c]
		vec.Add(out, out, total)
	}
}

// weighBias takes a range of tokens.
func weighBias(x *exec, lo, hi int) {
	a := x.op.WeighBias()
	dweights, dy, bias, experts := f32(a.DWeights), x.values(0, a.DY), f32(a.Bias), i32(a.Experts)
	k, c := a.Experts.Cols(), a.DY.Cols()
	for n := lo; n < hi; n++ {
		d := x.get(dy, n*c, (n+1)*c)
		for pair := n * k; pair < (n+1)*k; pair++ {
			dweights[pair] += x.rowDot(d, bias[placeAt(experts, pair, a.Bias.Rows())*c:][:c])
		}
	}
}
