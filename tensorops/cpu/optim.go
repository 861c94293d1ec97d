package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// normBlock is the number of elements whose squares are summed in one piece.
const normBlock = 8192

func (x *exec) squaredNorm() error {
	a := x.op.SquaredNorm()
	n := a.X.Len()
	blocks := (n + normBlock - 1) / normBlock
	x.partial = scratch(&x.partial, blocks)
	if err := x.parallel(blocks, 1, normBlocks); err != nil {
		return err
	}
	var sum float64
	for _, p := range x.partial {
		sum += p
	}
	f64(a.Out)[0] = sum
	return nil
}

func normBlocks(x *exec, lo, hi int) {
	in := x.op.SquaredNorm().X
	squares, n := x.values(0, in), in.Len()
	for b := lo; b < hi; b++ {
		x.partial[b] = x.dev.kernels.vec.Squares(x.get(squares, b*normBlock, min((b+1)*normBlock, n)))
	}
}

func adamW(x *exec, lo, hi int) {
	a := x.op.AdamW()
	step, m, v := x.adamW(a), f32(a.M), f32(a.V)
	parts(lo, hi, func(lo, hi int) { step(lo, hi, m[lo:hi], v[lo:hi]) }, x.values(0, a.Copy))
}

// adamW returns what updates the elements [lo, hi) with their moments.
func (x *exec) adamW(a tensorops.AdamWArgs) func(lo, hi int, m, v []float32) {
	step := float64(a.Step)
	w, g, low := f32(a.W), f32(a.G), x.values(0, a.Copy)
	o := vec.AdamW{
		Beta1: a.Beta1,
		Beta2: a.Beta2,
		Keep:  1 - float64(a.LR*a.WeightDecay), // not fused with the addition, as arm64 would
		Rate:  a.LR / (1 - math.Pow(a.Beta1, step)),
		Root:  1 / math.Sqrt(1-math.Pow(a.Beta2, step)),
		Eps:   a.Eps,
		Scale: a.GradScale,
		Clear: a.ClearGrad,
	}
	return func(lo, hi int, m, v []float32) {
		x.dev.kernels.vec.AdamW(w[lo:hi], m, v, g[lo:hi], o)
		x.put(low, lo, w[lo:hi])
	}
}

func sgd(x *exec, lo, hi int) {
	a := x.op.SGD()
	step, m := x.sgd(a), optional(a.M)
	parts(lo, hi, func(lo, hi int) {
		var before []float32
		if m != nil {
			before = m[lo:hi]
		}
		step(lo, hi, before)
	}, x.values(0, a.Copy))
}

// sgd returns what updates the elements [lo, hi) with their momentum, where there is one.
func (x *exec) sgd(a tensorops.SGDArgs) func(lo, hi int, m []float32) {
	w, g, low := f32(a.W), f32(a.G), x.values(0, a.Copy)
	rate, momentum, decay, scale := float32(a.LR), float32(a.Momentum), float32(a.WeightDecay), float32(a.GradScale)
	return func(lo, hi int, m []float32) {
		x.dev.kernels.vec.SGD(w[lo:hi], m, g[lo:hi], rate, momentum, decay, scale)
		x.put(low, lo, w[lo:hi])
	}
}
