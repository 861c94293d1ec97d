package ref

import "github.com/troupe-ml/troupe/tensorops"

// routeCount: counts += the rows of each expert in each run.
func routeCount(op *tensorops.Op) {
	a := op.RouteCount()
	counts := matrixOf(a.Counts)
	for run, of := range counted(ids(a.Experts), counts.cols, tensorops.RouteOpts{Sequences: counts.rows}) {
		for e, n := range of {
			*counts.at(run, e) += n
		}
	}
}

// routeBias: bias += rate·sign(mean − counts).
func routeBias(op *tensorops.Op) {
	a := op.RouteBias()
	bias, counts := Values(a.Bias), Values(a.Counts)
	sum := 0.0
	for _, c := range counts {
		sum += c
	}
	for e, c := range counts {
		switch mean := sum / float64(len(counts)); {
		case c < mean:
			bias[e] += a.Rate
		case c > mean:
			bias[e] -= a.Rate
		}
	}
}

// rowGate: y = σ(gate)·x.
func rowGate(op *tensorops.Op) {
	a := op.RowGate()
	y, x, gate := matrixOf(a.Y), matrixOf(a.X), Values(a.Gate)
	for n := range x.rows {
		for c := range x.cols {
			*y.at(n, c) = sigmoid(gate[n]) * *x.at(n, c)
		}
	}
}

// rowGateGrad: dgate = σ·(1 − σ)·(x·dy), dx = σ·dy.
func rowGateGrad(op *tensorops.Op) {
	a := op.RowGateGrad()
	dx, dy, x, dgate, gate := matrixOf(a.DX), matrixOf(a.DY), matrixOf(a.X), Values(a.DGate), Values(a.Gate)
	for n := range x.rows {
		s, sum := sigmoid(gate[n]), 0.0
		for c := range x.cols {
			sum += *x.at(n, c) * *dy.at(n, c)
			*dx.at(n, c) = s * *dy.at(n, c)
		}
		dgate[n] = s * (1 - s) * sum
	}
}
