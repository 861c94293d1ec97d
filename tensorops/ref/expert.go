package ref

import "github.com/troupe-ml/troupe/tensorops"

// eachPlace visits the pairs of a row and one of its places.
func eachPlace(places tensorops.Tensor, rows int, visit func(n, pair, place int)) error {
	for i, p := range ids(places) {
		if err := tensorops.CheckPlace(i, p, rows); err != nil {
			return err
		}
		visit(i/places.Cols(), i, int(p))
	}
	return nil
}

// dispatch: rows[places[n, j]] = x[n].
func dispatch(op *tensorops.Op) error {
	a := op.Dispatch()
	rows, x := matrixOf(a.Rows), matrixOf(a.X)
	return eachPlace(a.Places, rows.rows, func(n, _, place int) {
		for c := range x.cols {
			*rows.at(place, c) = *x.at(n, c)
		}
	})
}

// combine: y[n] = Σ weights[n, j]·rows[places[n, j]].
func combine(op *tensorops.Op) error {
	a := op.Combine()
	y, rows := matrixOf(a.Y), matrixOf(a.Rows)
	for n := range y.rows {
		for c := range y.cols {
			*y.at(n, c) = 0
		}
	}
	return eachPlace(a.Places, rows.rows, func(n, pair, place int) {
		w := 1.0
		if a.Weights.Valid() {
			w = Values(a.Weights)[pair]
		}
		for c := range y.cols {
			*y.at(n, c) += w * *rows.at(place, c)
		}
	})
}

// weighRows: dweights = rows·drows, and both times their weights.
func weighRows(op *tensorops.Op) error {
	a := op.WeighRows()
	rows, drows, dweights, weights := matrixOf(a.Rows), matrixOf(a.DRows), Values(a.DWeights), Values(a.Weights)
	weigh := func(_, pair, place int) {
		dweights[pair] = 0
		for c := range rows.cols {
			dweights[pair] += *rows.at(place, c) * *drows.at(place, c)
			*rows.at(place, c) *= weights[pair]
			*drows.at(place, c) *= weights[pair]
		}
	}
	if a.Places.Valid() {
		return eachPlace(a.Places, rows.rows, weigh)
	}
	offsets := ids(a.Offsets)
	if err := tensorops.CheckSourceOffsets(offsets, rows.rows, 1); err != nil {
		return err
	}
	for row := range int(offsets[len(offsets)-1]) {
		weigh(row, row, row)
	}
	return nil
}

// eachExpert visits the experts with their rows: those of one source, or with a negative number those of all.
func eachExpert(offsets tensorops.Tensor, rows, source, sources int, visit func(e, from, to int)) error {
	at, parts := ids(offsets), max(sources, 1)
	if err := tensorops.CheckSourceOffsets(at, rows, sources); err != nil {
		return err
	}
	for e := range (len(at) - 1) / parts {
		if source < 0 {
			visit(e, int(at[e*parts]), int(at[(e+1)*parts]))
		} else {
			visit(e, int(at[e*parts+source]), int(at[e*parts+source+1]))
		}
	}
	return nil
}

// sourceOffsets: where the rows of each expert and source begin.
func sourceOffsets(op *tensorops.Op) error {
	a := op.SourceOffsets()
	t, err := tensorops.ReadSources(ids(a.Table), a.Table.Rows())
	if err == nil {
		t.Offsets(ids(a.Offsets), a.Rank)
	}
	return err
}

// rounder is bf16, or nothing.
func rounder(half bool) func(float64) float64 {
	if half {
		return bf16
	}
	return func(v float64) float64 { return v }
}

// groupedMatMul: C[p] = A[p]·B[e].
func groupedMatMul(op *tensorops.Op) error {
	args := op.GroupedMatMul()
	c, a, b, round := matrixOf(args.C), matrixOf(args.A), matrixOf(args.B), rounder(args.BF16)
	return eachExpert(args.Offsets, a.rows, -1, args.Sources, func(e, from, to int) {
		for p := from; p < to; p++ {
			for j := range c.cols {
				sum := 0.0
				for k := range a.cols {
					if args.TransB {
						sum += round(*a.at(p, k)) * round(*b.at(e*c.cols+j, k))
					} else {
						sum += round(*a.at(p, k)) * round(*b.at(e*a.cols+k, j))
					}
				}
				if args.Accumulate {
					sum += *c.at(p, j)
				}
				if args.Bias.Valid() {
					sum += Values(args.Bias)[e*c.cols+j]
				}
				*c.at(p, j) = sum
			}
		}
	})
}

// groupedWeightGrad: dweight[e] += dyᵀ·x over the expert's rows.
func groupedWeightGrad(op *tensorops.Op) error {
	a := op.GroupedWeightGrad()
	dweight, dy, x, round := matrixOf(a.DWeight), matrixOf(a.DY), matrixOf(a.X), rounder(a.BF16)
	return eachExpert(a.Offsets, x.rows, a.Source, a.Sources, func(e, from, to int) {
		for j := range dy.cols {
			for k := range x.cols {
				sum := 0.0
				for p := from; p < to; p++ {
					sum += round(*dy.at(p, j)) * round(*x.at(p, k))
				}
				*dweight.at(e*dy.cols+j, k) += sum
			}
		}
	})
}
