package cpu

import "math"

// normBlock is the number of elements whose squares are summed in one piece.
const normBlock = 8192

func (x *exec) squaredNorm() error {
	n := x.op.T[1].Len()
	blocks := (n + normBlock - 1) / normBlock
	x.partial = x.partial[:0]
	for range blocks {
		x.partial = append(x.partial, 0)
	}
	if err := x.parallel(blocks, 1, normBlocks); err != nil {
		return err
	}
	var sum float64
	for _, p := range x.partial {
		sum += p
	}
	f64(x.op.T[0])[0] = sum
	return nil
}

func normBlocks(x *exec, lo, hi int) {
	in := f32(x.op.T[1])
	for b := lo; b < hi; b++ {
		var sum float64
		for _, v := range in[b*normBlock : min((b+1)*normBlock, len(in))] {
			sum += float64(v) * float64(v)
		}
		x.partial[b] = sum
	}
}

func adamW(x *exec, lo, hi int) {
	op := x.op
	w, m, v, g := f32(op.T[0])[lo:hi], f32(op.T[1])[lo:hi], f32(op.T[2])[lo:hi], f32(op.T[3])[lo:hi]
	lr, b1, b2, eps, decay, scale := op.F[0], op.F[1], op.F[2], op.F[3], op.F[4], float32(op.F[5])
	step := float64(op.I[0])
	c1, c2 := 1-math.Pow(b1, step), 1-math.Pow(b2, step)
	keep := float32(1 - lr*decay)
	rate := float32(lr / c1)
	root := float32(1 / math.Sqrt(c2))
	e := float32(eps)
	fb1, fb2, nb1, nb2 := float32(b1), float32(b2), float32(1-b1), float32(1-b2)
	for i, gi := range g {
		gi *= scale
		mi := fb1*m[i] + nb1*gi
		vi := fb2*v[i] + nb2*gi*gi
		m[i], v[i] = mi, vi
		w[i] = keep*w[i] - rate*mi/(sqrt32(vi)*root+e)
	}
}

func sqrt32(v float32) float32 { return float32(math.Sqrt(float64(v))) }

func sgd(x *exec, lo, hi int) {
	op := x.op
	w, g := f32(op.T[0])[lo:hi], f32(op.T[2])[lo:hi]
	lr, momentum, decay, scale := float32(op.F[0]), float32(op.F[1]), float32(op.F[2]), float32(op.F[3])
	if !op.T[1].Valid() {
		for i, gi := range g {
			w[i] -= lr * (gi*scale + decay*w[i])
		}
		return
	}
	m := f32(op.T[1])[lo:hi]
	for i, gi := range g {
		m[i] = momentum*m[i] + (gi*scale + decay*w[i])
		w[i] -= lr * m[i]
	}
}
