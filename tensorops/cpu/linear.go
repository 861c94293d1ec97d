package cpu

// colSum adds the rows of x in ascending order, in float64, and then to the sum.
func colSum(x *exec, lo, hi int) {
	sum, in := f32(x.op.T[0]), f32(x.op.T[1])
	c := x.op.T[1].Cols()
	var acc [colGrain]float64
	for j0 := lo; j0 < hi; j0 += colGrain {
		w := min(colGrain, hi-j0)
		clear(acc[:])
		for r := j0; r < len(in); r += c {
			for j, v := range in[r : r+w] {
				acc[j] += float64(v)
			}
		}
		for j := range w {
			sum[j0+j] += float32(acc[j])
		}
	}
}

func add(x *exec, lo, hi int) {
	out, a, b := f32(x.op.T[0])[lo:hi], f32(x.op.T[1])[lo:hi], f32(x.op.T[2])[lo:hi]
	for i := range out {
		out[i] = a[i] + b[i]
	}
}
