package cpu

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/vec"
)

// normBlock is the number of elements whose squares are summed in one piece.
const normBlock = 8192

func (x *exec) squaredNorm() error {
	n := x.op.T[1].Len()
	blocks := (n + normBlock - 1) / normBlock
	x.partial = scratch(&x.partial, blocks)
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
		x.partial[b] = x.dev.kernels.vec.Squares(in[b*normBlock : min((b+1)*normBlock, len(in))])
	}
}

func adamW(x *exec, lo, hi int) {
	op := x.op
	lr, beta1, beta2, eps, decay, scale := op.F[0], op.F[1], op.F[2], op.F[3], op.F[4], op.F[5]
	step := float64(op.I[0])
	x.dev.kernels.vec.AdamW(f32(op.T[0])[lo:hi], f32(op.T[1])[lo:hi], f32(op.T[2])[lo:hi], f32(op.T[3])[lo:hi], vec.AdamW{
		Beta1: beta1,
		Beta2: beta2,
		Keep:  1 - lr*decay,
		Rate:  lr / (1 - math.Pow(beta1, step)),
		Root:  1 / math.Sqrt(1-math.Pow(beta2, step)),
		Eps:   eps,
		Scale: scale,
		Clear: op.Has(tensorops.FlagClear),
	})
}

func sgd(x *exec, lo, hi int) {
	op := x.op
	var m []float32
	if op.T[1].Valid() {
		m = f32(op.T[1])[lo:hi]
	}
	rate, momentum, decay, scale := float32(op.F[0]), float32(op.F[1]), float32(op.F[2]), float32(op.F[3])
	x.dev.kernels.vec.SGD(f32(op.T[0])[lo:hi], m, f32(op.T[2])[lo:hi], rate, momentum, decay, scale)
}
