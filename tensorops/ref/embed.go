package ref

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// checkID reports a row's token id that the vocabulary does not have.
func checkID(row int, id int32, vocabulary int) error {
	if id < 0 || int(id) >= vocabulary {
		return fmt.Errorf("%w: row %d holds token %d, but the vocabulary has %d tokens", tensorops.ErrToken, row, id, vocabulary)
	}
	return nil
}

// embed: out[n] = weight[ids[n]].
func embed(op *tensorops.Op) error {
	a := op.Embed()
	out, weight := matrixOf(a.Out), matrixOf(a.Weight)
	for n, id := range ids(a.IDs) {
		if err := checkID(n, id, weight.rows); err != nil {
			return err
		}
		for j := range out.cols {
			*out.at(n, j) = *weight.at(int(id), j)
		}
	}
	return nil
}

// embedGrad: grad[ids[n]] += dy[n].
func embedGrad(op *tensorops.Op) error {
	a := op.EmbedGrad()
	grad, dy := matrixOf(a.Grad), matrixOf(a.DY)
	for n, id := range ids(a.IDs) {
		if err := checkID(n, id, grad.rows); err != nil {
			return err
		}
		for j := range dy.cols {
			*grad.at(int(id), j) += *dy.at(n, j)
		}
	}
	return nil
}

// addPositions: out[n] = x[n] + weight[first + n mod period].
func addPositions(op *tensorops.Op) {
	a := op.AddPositions()
	out, x, weight := Values(a.Out), matrixOf(a.X), matrixOf(a.Weight)
	for n := range x.rows {
		for j := range x.cols {
			out[n*x.cols+j] = *x.at(n, j) + *weight.at(a.First+n%a.Period, j)
		}
	}
}

// positionsGrad: grad[first + n mod period] += dy[n].
func positionsGrad(op *tensorops.Op) {
	a := op.PositionsGrad()
	grad, dy := matrixOf(a.Grad), matrixOf(a.DY)
	for n := range dy.rows {
		for j := range dy.cols {
			*grad.at(a.First+n%a.Period, j) += *dy.at(n, j)
		}
	}
}
