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

// startAt is the start of row n, 0 if there are no starts.
func startAt(starts tensorops.Tensor, n int) int {
	if !starts.Valid() {
		return 0
	}
	return int(ids(starts)[n])
}

// addPositions: out[n] = x[n] + weight[first + n mod period − starts[n]].
func addPositions(op *tensorops.Op) {
	a := op.AddPositions()
	out, x, weight := Values(a.Out), matrixOf(a.X), matrixOf(a.Weight)
	for n := range x.rows {
		row := a.Row(n, startAt(a.Starts, n), weight.rows)
		for j := range x.cols {
			out[n*x.cols+j] = *x.at(n, j) + *weight.at(row, j)
		}
	}
}

// positionsGrad: grad[first + n mod period − starts[n]] += dy[n].
func positionsGrad(op *tensorops.Op) {
	a := op.PositionsGrad()
	grad, dy := matrixOf(a.Grad), matrixOf(a.DY)
	for n := range dy.rows {
		row := a.Row(n, startAt(a.Starts, n), grad.rows)
		for j := range dy.cols {
			*grad.at(row, j) += *dy.at(n, j)
		}
	}
}
