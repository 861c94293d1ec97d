package cuda

import (
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// use is what an operation does with one of its operands.
type use uint8

const (
	reads   use = iota + 1
	writes      // all of it, and reads nothing of what was there
	changes     // reads it, and writes all of it
)

// uses are the operands, in the order of Op.T, of the operations whose launchers know float32
// alone. What is bfloat16 of them is widened before, and rounded after.
var uses = map[tensorops.Kind][]use{
	tensorops.KindAttention:     {writes, reads, reads, reads, writes},
	tensorops.KindAttentionGrad: {writes, writes, writes, reads, reads, reads, reads, reads, reads},
}

// knowBFloat16 are the operations whose launchers take bfloat16 themselves.
var knowBFloat16 = []tensorops.Kind{
	tensorops.KindMatMul, tensorops.KindPack, tensorops.KindColSum,
	tensorops.KindEmbed, tensorops.KindEmbedGrad, tensorops.KindAddPositions, tensorops.KindPositionsGrad,
	tensorops.KindLayerNorm, tensorops.KindLayerNormGrad, tensorops.KindLayerNormWeightGrad,
	tensorops.KindRMSNorm, tensorops.KindRMSNormGrad, tensorops.KindRMSNormWeightGrad,
	tensorops.KindGELU, tensorops.KindGELUGrad, tensorops.KindSwiGLU, tensorops.KindSwiGLUGrad,
	tensorops.KindRoPE, tensorops.KindDropout, tensorops.KindAdd, tensorops.KindCrossEntropy,
	tensorops.KindFill, tensorops.KindCopy, tensorops.KindSquaredNorm, tensorops.KindAdamW, tensorops.KindSGD,
	tensorops.KindSpin,
}

// byLauncher carries out an operation by its launcher, with float32 for bfloat16 where that knows
// no other.
func (x *exec) byLauncher(o *tensorops.Op, l launcher) error {
	switch {
	case !slices.ContainsFunc(o.T[:], isBFloat16) || slices.Contains(knowBFloat16, o.Kind):
		return l(x, o)
	case uses[o.Kind] == nil:
		return tensorops.ErrUnsupported
	}
	return x.launchInFloat32(o, l, uses[o.Kind])
}

// launchInFloat32 carries out an operation by a launcher that knows float32 alone.
func (x *exec) launchInFloat32(o *tensorops.Op, l launcher, operands []use) (err error) {
	x.wide = *o // in the exec, since a launcher's argument is on the heap
	defer func() { x.wide = tensorops.Op{} }()
	for i, u := range operands {
		if !isBFloat16(o.T[i]) {
			continue
		}
		if u == writes {
			x.wide.T[i], err = x.float32Like(o.T[i])
		} else {
			x.wide.T[i], err = x.widened(o.T[i])
		}
		if err != nil {
			return err
		}
	}
	if err := l(x, &x.wide); err != nil {
		return err
	}
	for i, u := range operands {
		if u == reads || !isBFloat16(o.T[i]) {
			continue
		}
		if err := copyTo(x, o.T[i], x.wide.T[i]); err != nil {
			return err
		}
	}
	return nil
}

func isBFloat16(t tensorops.Tensor) bool { return t.Valid() && t.DType() == tensorops.BFloat16 }

// float32Like is a matrix in scratch memory, of float32, with the rows and columns of another.
func (x *exec) float32Like(t tensorops.Tensor) (tensorops.Tensor, error) {
	wide, err := tensorops.NewTensor(x.temporary, tensorops.Float32, t.Rows(), t.Cols())
	if err == nil {
		x.taken = append(x.taken, wide.Buffer())
	}
	return wide, err
}

// widened is a matrix in float32: itself, or a copy in scratch memory.
func (x *exec) widened(t tensorops.Tensor) (tensorops.Tensor, error) {
	if !isBFloat16(t) {
		return t, nil
	}
	wide, err := x.float32Like(t)
	if err != nil {
		return wide, err
	}
	return wide, copyTo(x, wide, t)
}
