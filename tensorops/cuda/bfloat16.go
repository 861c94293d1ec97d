package cuda

import "github.com/troupe-ml/troupe/tensorops"

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
	tensorops.KindColSum:              {changes, reads},
	tensorops.KindEmbedGrad:           {changes, reads, reads},
	tensorops.KindAddPositions:        {writes, reads, reads},
	tensorops.KindPositionsGrad:       {changes, reads},
	tensorops.KindLayerNorm:           {writes, reads, reads, reads, writes},
	tensorops.KindLayerNormGrad:       {writes, reads, reads, reads, reads, reads},
	tensorops.KindLayerNormWeightGrad: {changes, changes, reads, reads, reads},
	tensorops.KindRMSNorm:             {writes, reads, reads, writes},
	tensorops.KindRMSNormGrad:         {writes, reads, reads, reads, reads, reads},
	tensorops.KindRMSNormWeightGrad:   {changes, reads, reads, reads},
	tensorops.KindGELU:                {writes, reads},
	tensorops.KindGELUGrad:            {writes, reads, reads},
	tensorops.KindSwiGLU:              {writes, reads, reads},
	tensorops.KindSwiGLUGrad:          {writes, writes, reads, reads, reads},
	tensorops.KindRoPE:                {changes},
	tensorops.KindAttention:           {writes, reads, reads, reads, writes},
	tensorops.KindAttentionGrad:       {writes, writes, writes, reads, reads, reads, reads, reads, reads},
	tensorops.KindDropout:             {writes, reads, reads},
	tensorops.KindAdd:                 {writes, reads, reads},
	tensorops.KindCrossEntropy:        {writes, writes, reads, reads, writes},
}

// knowBFloat16 are the operations whose launchers take bfloat16 themselves, where it is
// allowed.
var knowBFloat16 = []tensorops.Kind{
	tensorops.KindMatMul, tensorops.KindPack, tensorops.KindEmbed, tensorops.KindFill, tensorops.KindCopy,
	tensorops.KindSquaredNorm, tensorops.KindAdamW, tensorops.KindSGD, tensorops.KindSpin,
}

// launchInFloat32 carries out an operation by a launcher that knows float32 alone.
func (x *exec) launchInFloat32(o *tensorops.Op, l launcher) (err error) {
	kinds, narrow := uses[o.Kind], false
	for i, t := range o.T {
		narrow = narrow || i < len(kinds) && isBFloat16(t)
	}
	if !narrow {
		return l(x, o)
	}
	x.wide = *o // in the exec, since a launcher's argument is on the heap
	defer func() { x.wide = tensorops.Op{} }()
	for i, u := range kinds {
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
	for i, u := range kinds {
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
