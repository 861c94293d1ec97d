package vec

import "math"

// LayerNorm stores (x − mean)·rstd·gamma over a row, plus beta where it is not
// nil, and returns the statistics; rstd = 1/√(variance + eps).
func (k *Kernels) LayerNorm(y, x, gamma, beta []float32, eps float64) (mean, rstd float32) {
	n := len(y)
	x = x[:n]
	// Sums of what remains without the first element lose nothing when the row
	// is far from zero.
	sum, squares := k.moments(x, x[0])
	offset := sum / float64(n)
	variance := max(squares/float64(n)-float64(offset*offset), 0) // not fused with the addition, as arm64 would
	mean = float32(float64(x[0]) + offset)
	rstd = float32(1 / math.Sqrt(variance+eps))
	k.normaliseRow(y, x, gamma, beta, mean, rstd)
	return mean, rstd
}

// RMSNorm stores x·rstd·gamma over a row and returns rstd = 1/√(mean of squares +
// eps).
func (k *Kernels) RMSNorm(y, x, gamma []float32, eps float64) (rstd float32) {
	x = x[:len(y)]
	rstd = float32(1 / math.Sqrt(k.squares(x)/float64(len(y))+eps))
	k.normaliseRow(y, x, gamma, nil, 0, rstd)
	return rstd
}

func (k *Kernels) normaliseRow(y, x, gamma, beta []float32, mean, rstd float32) {
	n := len(y)
	if beta == nil {
		k.normalise(y, x, gamma[:n], mean, rstd)
		return
	}
	k.normaliseAdd(y, x, gamma[:n], beta[:n], mean, rstd)
}

// LayerNormGrad stores the gradient of a row of LayerNorm's input, plus skip
// where it is not nil.
func (k *Kernels) LayerNormGrad(dx, dy, x, gamma, skip []float32, mean, rstd float32) {
	n := len(dx)
	sum, dot := k.normSums(dy[:n], x[:n], gamma[:n], mean)
	k.normGradRow(dx, dy, x, gamma, skip, mean, rstd, sum/float32(n), rstd*rstd*dot/float32(n))
}

// RMSNormGrad stores the gradient of a row of RMSNorm's input, plus skip where
// it is not nil.
func (k *Kernels) RMSNormGrad(dx, dy, x, gamma, skip []float32, rstd float32) {
	n := len(dx)
	_, dot := k.normSums(dy[:n], x[:n], gamma[:n], 0)
	k.normGradRow(dx, dy, x, gamma, skip, 0, rstd, 0, rstd*rstd*dot/float32(n))
}

func (k *Kernels) normGradRow(dx, dy, x, gamma, skip []float32, mean, rstd, a, b float32) {
	n := len(dx)
	if skip == nil {
		k.normGrad(dx, dy[:n], x[:n], gamma[:n], mean, rstd, a, b)
		return
	}
	k.normGradAdd(dx, dy[:n], x[:n], gamma[:n], skip[:n], mean, rstd, a, b)
}

// LayerNormWeightGrad adds dy·x̂ to dgamma and dy to dbeta for rows one after the
// other, in ascending order. stats holds mean and rstd of each.
func (k *Kernels) LayerNormWeightGrad(dgamma, dbeta, dy, x, stats []float32) {
	c := len(dgamma)
	dbeta = dbeta[:c]
	for len(stats) >= 8 {
		k.layerNormWeightGradFour(dgamma, dbeta, dy[:4*c], x[:4*c], stats[:8])
		dy, x, stats = dy[4*c:], x[4*c:], stats[8:]
	}
	for len(stats) >= 2 {
		k.layerNormWeightGradOne(dgamma, dbeta, dy[:c], x[:c], stats[:2])
		dy, x, stats = dy[c:], x[c:], stats[2:]
	}
}

// RMSNormWeightGrad adds dy·x·rstd to dgamma for rows one after the other, in
// ascending order. stats holds rstd of each.
func (k *Kernels) RMSNormWeightGrad(dgamma, dy, x, stats []float32) {
	c := len(dgamma)
	for len(stats) >= 4 {
		k.rmsNormWeightGradFour(dgamma, dy[:4*c], x[:4*c], stats[:4])
		dy, x, stats = dy[4*c:], x[4*c:], stats[4:]
	}
	for len(stats) >= 1 {
		k.rmsNormWeightGradOne(dgamma, dy[:c], x[:c], stats[:1])
		dy, x, stats = dy[c:], x[c:], stats[1:]
	}
}

// Squares returns the sum of the squares, in float64.
func (k *Kernels) Squares(x []float32) float64 { return k.squares(x) }

func momentsGo(x []float32, shift float32) (sum, squares float64) {
	var s, q doubles
	for i, v := range x {
		d := float64(v) - float64(shift)
		s[i%reduceDoubles] += d
		q[i%reduceDoubles] += d * d
	}
	return s.total(), q.total()
}

func squaresGo(x []float32) float64 {
	var q doubles
	for i, v := range x {
		q[i%reduceDoubles] += float64(v) * float64(v)
	}
	return q.total()
}

func normaliseGo(y, x, gamma []float32, mean, rstd float32) {
	for i, v := range x {
		y[i] = (v - mean) * rstd * gamma[i]
	}
}

func normaliseAddGo(y, x, gamma, beta []float32, mean, rstd float32) {
	for i, v := range x {
		y[i] = (v-mean)*rstd*gamma[i] + beta[i]
	}
}

func normSumsGo(dy, x, gamma []float32, mean float32) (sum, dot float32) {
	var s, d sums
	for i, v := range x {
		g := float32(dy[i] * gamma[i])
		s[i%reduceLanes] += g
		d[i%reduceLanes] += g * (v - mean)
	}
	return s.total(), d.total()
}

func normGradGo(dx, dy, x, gamma []float32, mean, rstd, a, b float32) {
	for i, v := range x {
		dx[i] = rstd * ((float32(dy[i]*gamma[i]) - a) - (v-mean)*b)
	}
}

func normGradAddGo(dx, dy, x, gamma, skip []float32, mean, rstd, a, b float32) {
	for i, v := range x {
		dx[i] = float32(rstd*((float32(dy[i]*gamma[i])-a)-(v-mean)*b)) + skip[i]
	}
}

func layerNormWeightGradGo(dgamma, dbeta, dy, x, stats []float32) {
	for j := range dgamma {
		g, b := dgamma[j], dbeta[j]
		for r, at := 0, j; r < len(stats); r, at = r+2, at+len(dgamma) {
			g += dy[at] * ((x[at] - stats[r]) * stats[r+1])
			b += dy[at]
		}
		dgamma[j], dbeta[j] = g, b
	}
}

func rmsNormWeightGradGo(dgamma, dy, x, stats []float32) {
	for j := range dgamma {
		g := dgamma[j]
		for r, at := 0, j; r < len(stats); r, at = r+1, at+len(dgamma) {
			g += dy[at] * (x[at] * stats[r])
		}
		dgamma[j] = g
	}
}
