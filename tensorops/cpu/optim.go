package cpu

import (
	"math"

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
	in := f32(x.op.SquaredNorm().X)
	for b := lo; b < hi; b++ {
		x.partial[b] = x.dev.kernels.vec.Squares(in[b*normBlock : min((b+1)*normBlock, len(in))])
	}
}

func adamW(x *exec, lo, hi int) {
	a := x.op.AdamW()
	step := float64(a.Step)
	x.dev.kernels.vec.AdamW(f32(a.W)[lo:hi], f32(a.M)[lo:hi], f32(a.V)[lo:hi], f32(a.G)[lo:hi], vec.AdamW{
		Beta1: a.Beta1,
		Beta2: a.Beta2,
		Keep:  1 - a.LR*a.WeightDecay,
		Rate:  a.LR / (1 - math.Pow(a.Beta1, step)),
		Root:  1 / math.Sqrt(1-math.Pow(a.Beta2, step)),
		Eps:   a.Eps,
		Scale: a.GradScale,
		Clear: a.ClearGrad,
	})
}

func sgd(x *exec, lo, hi int) {
	a := x.op.SGD()
	m := optional(a.M)
	if m != nil {
		m = m[lo:hi]
	}
	rate, momentum, decay, scale := float32(a.LR), float32(a.Momentum), float32(a.WeightDecay), float32(a.GradScale)
	x.dev.kernels.vec.SGD(f32(a.W)[lo:hi], m, f32(a.G)[lo:hi], rate, momentum, decay, scale)
}
