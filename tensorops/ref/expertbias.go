package ref

import "github.com/troupe-ml/troupe/tensorops"

// groupedColSum: sum[e] += Σ weight·x over the expert's rows.
func groupedColSum(op *tensorops.Op) error {
	a := op.GroupedColSum()
	sum, x := matrixOf(a.Sum), matrixOf(a.X)
	weights := make([]float64, x.rows)
	for p := range weights {
		weights[p] = 1
	}
	if a.Weights.Valid() && !a.Places.Valid() {
		weights = Values(a.Weights)
	} else if a.Weights.Valid() {
		of := Values(a.Weights)
		if err := eachPlace(a.Places, x.rows, func(_, pair, place int) { weights[place] = of[pair] }); err != nil {
			return err
		}
	}
	return eachExpert(a.Offsets, x.rows, a.Source, a.Sources, func(e, from, to int) {
		for p := from; p < to; p++ {
			for c := range x.cols {
				*sum.at(e, c) += weights[p] * *x.at(p, c)
			}
		}
	})
}

// weighBias: dweights[n, j] += bias[expert]·dy[n].
func weighBias(op *tensorops.Op) error {
	a := op.WeighBias()
	dweights, dy, bias := Values(a.DWeights), matrixOf(a.DY), matrixOf(a.Bias)
	return eachPlace(a.Experts, bias.rows, func(n, pair, e int) {
		for c := range dy.cols {
			dweights[pair] += *bias.at(e, c) * *dy.at(n, c)
		}
	})
}
