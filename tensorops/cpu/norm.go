package cpu

import "math"

// Rows are summed in float64: a row is short, and its two sums decide the
// precision of everything after it.

func layerNorm(x *exec, lo, hi int) {
	y, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[4])
	var beta []float32
	if x.op.T[3].Valid() {
		beta = f32(x.op.T[3])
	}
	c, eps := x.op.T[1].Cols(), x.op.F[0]
	gamma = gamma[:c]
	for n := lo; n < hi; n++ {
		v, out := in[n*c:][:c], y[n*c:][:c]
		var sum float64
		for _, e := range v {
			sum += float64(e)
		}
		mean := sum / float64(c)
		var sq float64
		for _, e := range v {
			d := float64(e) - mean
			sq += d * d
		}
		m, rstd := float32(mean), float32(1/math.Sqrt(sq/float64(c)+eps))
		stats[2*n], stats[2*n+1] = m, rstd
		if beta == nil {
			for j, e := range v {
				out[j] = (e - m) * rstd * gamma[j]
			}
			continue
		}
		for j, e := range v {
			out[j] = (e-m)*rstd*gamma[j] + beta[j]
		}
	}
}

func layerNormGrad(x *exec, lo, hi int) {
	dx, dy, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3]), f32(x.op.T[4])
	var skip []float32
	if x.op.T[5].Valid() {
		skip = f32(x.op.T[5])
	}
	c := x.op.T[2].Cols()
	gamma = gamma[:c]
	for n := lo; n < hi; n++ {
		v, g, out := in[n*c:][:c], dy[n*c:][:c], dx[n*c:][:c]
		mean, rstd := stats[2*n], stats[2*n+1]
		var sg, sgx float64
		for j, e := range v {
			gg := float64(g[j] * gamma[j])
			sg += gg
			sgx += gg * float64((e-mean)*rstd)
		}
		mg, mgx := float32(sg/float64(c)), float32(sgx/float64(c))
		for j, e := range v {
			d := rstd * (g[j]*gamma[j] - mg - (e-mean)*rstd*mgx)
			if skip != nil {
				d = skip[n*c+j] + d
			}
			out[j] = d
		}
	}
}

// layerNormWeightGrad takes a range of columns and adds the rows in order.
func layerNormWeightGrad(x *exec, lo, hi int) {
	dgamma, dy, in, stats := f32(x.op.T[0]), f32(x.op.T[2]), f32(x.op.T[3]), f32(x.op.T[4])
	c, rows := x.op.T[3].Cols(), x.op.T[3].Rows()
	var ag, ab [colGrain]float64
	for j0 := lo; j0 < hi; j0 += colGrain {
		w := min(colGrain, hi-j0)
		clear(ag[:])
		clear(ab[:])
		for n := range rows {
			mean, rstd := stats[2*n], stats[2*n+1]
			g, v := dy[n*c+j0:][:w], in[n*c+j0:][:w]
			for j, e := range g {
				ag[j] += float64(e * ((v[j] - mean) * rstd))
				ab[j] += float64(e)
			}
		}
		for j := range w {
			dgamma[j0+j] += float32(ag[j])
		}
		if x.op.T[1].Valid() {
			dbeta := f32(x.op.T[1])
			for j := range w {
				dbeta[j0+j] += float32(ab[j])
			}
		}
	}
}

func rmsNorm(x *exec, lo, hi int) {
	y, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3])
	c, eps := x.op.T[1].Cols(), x.op.F[0]
	gamma = gamma[:c]
	for n := lo; n < hi; n++ {
		v, out := in[n*c:][:c], y[n*c:][:c]
		var sq float64
		for _, e := range v {
			sq += float64(e) * float64(e)
		}
		rstd := float32(1 / math.Sqrt(sq/float64(c)+eps))
		stats[n] = rstd
		for j, e := range v {
			out[j] = e * rstd * gamma[j]
		}
	}
}

func rmsNormGrad(x *exec, lo, hi int) {
	dx, dy, in, gamma, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3]), f32(x.op.T[4])
	var skip []float32
	if x.op.T[5].Valid() {
		skip = f32(x.op.T[5])
	}
	c := x.op.T[2].Cols()
	gamma = gamma[:c]
	for n := lo; n < hi; n++ {
		v, g, out := in[n*c:][:c], dy[n*c:][:c], dx[n*c:][:c]
		rstd := stats[n]
		var sgx float64
		for j, e := range v {
			sgx += float64(g[j]*gamma[j]) * float64(e*rstd)
		}
		mgx := float32(sgx / float64(c))
		for j, e := range v {
			d := rstd * (g[j]*gamma[j] - e*rstd*mgx)
			if skip != nil {
				d = skip[n*c+j] + d
			}
			out[j] = d
		}
	}
}

// rmsNormWeightGrad takes a range of columns and adds the rows in order.
func rmsNormWeightGrad(x *exec, lo, hi int) {
	dgamma, dy, in, stats := f32(x.op.T[0]), f32(x.op.T[1]), f32(x.op.T[2]), f32(x.op.T[3])
	c, rows := x.op.T[2].Cols(), x.op.T[2].Rows()
	var acc [colGrain]float64
	for j0 := lo; j0 < hi; j0 += colGrain {
		w := min(colGrain, hi-j0)
		clear(acc[:])
		for n := range rows {
			rstd := stats[n]
			g, v := dy[n*c+j0:][:w], in[n*c+j0:][:w]
			for j, e := range g {
				acc[j] += float64(e * (v[j] * rstd))
			}
		}
		for j := range w {
			dgamma[j0+j] += float32(acc[j])
		}
	}
}
