package tensorops

// Embed records out[n] = weight[ids[n]]: out N×C, weight V×C, ids N int32. An id
// outside of 0..V−1 fails with ErrToken. T: out, weight, ids.
func (l *List) Embed(out, weight, ids Tensor) {
	l.need(l.op(KindEmbed, out, weight, ids),
		dense(Float32, out, weight) && dense(Int32, ids) && out.Rows() == ids.Len() && out.Cols() == weight.Cols(),
		"out is N×C, weight V×C, ids N int32")
}

// EmbedGrad records grad[ids[n]] += dy[n] in ascending n. T: grad, dy, ids.
func (l *List) EmbedGrad(grad, dy, ids Tensor) {
	l.need(l.op(KindEmbedGrad, grad, dy, ids),
		dense(Float32, grad, dy) && dense(Int32, ids) && dy.Rows() == ids.Len() && dy.Cols() == grad.Cols(),
		"dy is N×C, grad V×C, ids N int32")
}

// AddPositions records out[n] = x[n] + weight[first + n mod period]: x N×C,
// period T. out may be x. T: out, x, weight. I: period, first.
func (l *List) AddPositions(out, x, weight Tensor, period, first int) {
	o := l.op(KindAddPositions, out, x, weight)
	o.I[0], o.I[1] = period, first
	l.need(o, dense(Float32, out, x, weight) && sameLen(out, x) && x.Cols() == weight.Cols() && fits(x, weight, period, first),
		"x is whole periods (sizes: period, first position), weight has a row for each position")
}

// PositionsGrad records grad[first + n mod period] += dy[n] in ascending n.
// T: grad, dy. I: period, first.
func (l *List) PositionsGrad(grad, dy Tensor, period, first int) {
	o := l.op(KindPositionsGrad, grad, dy)
	o.I[0], o.I[1] = period, first
	l.need(o, dense(Float32, grad, dy) && grad.Cols() == dy.Cols() && fits(dy, grad, period, first),
		"dy is whole periods (sizes: period, first position), grad has a row for each position")
}

// fits reports whether x is whole periods and every position has a row.
func fits(x, weight Tensor, period, first int) bool {
	return period > 0 && first >= 0 && x.Rows()%period == 0 && first+period <= weight.Rows()
}
