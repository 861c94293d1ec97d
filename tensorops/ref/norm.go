package ref

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

// The norms work row by row on slices of C elements; skip is none or N×C.

// row is row n of values that come c to a row.
func row(values []float64, n, c int) []float64 { return values[n*c:][:c] }

// skipped is what goes around the norm at element i: 0 without a skip input.
func skipped(skip tensorops.Tensor, i int) float64 {
	if !skip.Valid() {
		return 0
	}
	return Values(skip)[i]
}

// layerNorm: y = x̂·gamma + beta, x̂ = (x − mean)·rstd.
func layerNorm(op *tensorops.Op) {
	a := op.LayerNorm()
	y, x, gamma, stats := Values(a.Y), Values(a.X), Values(a.Gamma), Values(a.Stats)
	c := len(gamma)
	for n := range a.X.Rows() {
		in, out := row(x, n, c), row(y, n, c)
		var sum float64
		for _, v := range in {
			sum += v
		}
		mean := sum / float64(c)
		var squares float64
		for _, v := range in {
			squares += (v - mean) * (v - mean)
		}
		rstd := 1 / math.Sqrt(squares/float64(c)+a.Eps)
		for j, v := range in {
			out[j] = (v - mean) * rstd * gamma[j]
			if a.Beta.Valid() {
				out[j] += Values(a.Beta)[j]
			}
		}
		stats[2*n], stats[2*n+1] = mean, rstd
	}
}

// layerNormGrad: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) + skip, g = dy·gamma.
func layerNormGrad(op *tensorops.Op) {
	a := op.LayerNormGrad()
	dx, dy, x, gamma, stats := Values(a.DX), Values(a.DY), Values(a.X), Values(a.Gamma), Values(a.Stats)
	c := len(gamma)
	for n := range a.X.Rows() {
		in, grad, out := row(x, n, c), row(dy, n, c), row(dx, n, c)
		mean, rstd := stats[2*n], stats[2*n+1]
		var meanG, meanGX float64
		for j := range c {
			g := grad[j] * gamma[j]
			meanG += g / float64(c)
			meanGX += g * (in[j] - mean) * rstd / float64(c)
		}
		for j := range c {
			xhat := (in[j] - mean) * rstd
			out[j] = rstd*(grad[j]*gamma[j]-meanG-xhat*meanGX) + skipped(a.Skip, n*c+j)
		}
	}
}

// layerNormWeightGrad: dgamma += Σ dy·x̂, dbeta += Σ dy.
func layerNormWeightGrad(op *tensorops.Op) {
	a := op.LayerNormWeightGrad()
	dgamma, dy, x, stats := Values(a.DGamma), Values(a.DY), Values(a.X), Values(a.Stats)
	c := len(dgamma)
	for n := range a.X.Rows() {
		mean, rstd := stats[2*n], stats[2*n+1]
		for j, d := range row(dy, n, c) {
			dgamma[j] += d * (x[n*c+j] - mean) * rstd
			if a.DBeta.Valid() {
				Values(a.DBeta)[j] += d
			}
		}
	}
}

// rmsNorm: y = x·rstd·(gamma + offset).
func rmsNorm(op *tensorops.Op) {
	a := op.RMSNorm()
	y, x, gamma, stats := Values(a.Y), Values(a.X), Values(a.Gamma), Values(a.Stats)
	c := len(gamma)
	for n := range a.X.Rows() {
		in, out := row(x, n, c), row(y, n, c)
		var squares float64
		for _, v := range in {
			squares += v * v
		}
		rstd := 1 / math.Sqrt(squares/float64(c)+a.Eps)
		for j, v := range in {
			out[j] = v * rstd * (gamma[j] + a.Offset)
		}
		stats[n] = rstd
	}
}

// rmsNormGrad: dx = rstd·(g − x̂·mean(g·x̂)) + skip, g = dy·(gamma + offset), x̂ = x·rstd.
func rmsNormGrad(op *tensorops.Op) {
	a := op.RMSNormGrad()
	dx, dy, x, gamma, stats := Values(a.DX), Values(a.DY), Values(a.X), Values(a.Gamma), Values(a.Stats)
	c := len(gamma)
	for n := range a.X.Rows() {
		in, grad, out := row(x, n, c), row(dy, n, c), row(dx, n, c)
		rstd := stats[n]
		var meanGX float64
		for j := range c {
			meanGX += grad[j] * (gamma[j] + a.Offset) * in[j] * rstd / float64(c)
		}
		for j := range c {
			out[j] = rstd*(grad[j]*(gamma[j]+a.Offset)-in[j]*rstd*meanGX) + skipped(a.Skip, n*c+j)
		}
	}
}

// rmsNormWeightGrad: dgamma += Σ dy·x·rstd.
func rmsNormWeightGrad(op *tensorops.Op) {
	a := op.RMSNormWeightGrad()
	dgamma, dy, x, stats := Values(a.DGamma), Values(a.DY), Values(a.X), Values(a.Stats)
	c := len(dgamma)
	for n := range a.X.Rows() {
		for j, d := range row(dy, n, c) {
			dgamma[j] += d * x[n*c+j] * stats[n]
		}
	}
}
