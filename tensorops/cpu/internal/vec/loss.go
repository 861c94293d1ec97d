package vec

import "math"

// Max returns the largest element, or −Inf for an empty slice. It skips NaN.
func (k *Kernels) Max(x []float32) float32 { return k.max(x) }

// sumBlock bounds how many numbers are summed in float32.
const sumBlock = 4096

// SumExp returns the sum of e to the power of x − top: blocks of it in float32,
// and their sum in float64.
func (k *Kernels) SumExp(x []float32, top float32) float64 {
	var sum float64
	for len(x) > 0 {
		n := min(sumBlock, len(x))
		sum += float64(k.sumExp(x[:n], top))
		x = x[n:]
	}
	return sum
}

// CrossEntropyGrad stores scale·e to the power of logits − lse. lse is subtracted
// in two parts, which keeps the precision that one float32 would lose.
func (k *Kernels) CrossEntropyGrad(dst, logits []float32, lse float64, scale float32) {
	top := float32(lse)
	k.crossEntropyGrad(dst, logits[:len(dst)], top, float32(lse-float64(top)), scale)
}

func maxGo(x []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

func sumExpGo(x []float32, top float32) float32 {
	var sum sums
	for i, v := range x {
		sum[i%reduceLanes] += exp32(v - top)
	}
	return sum.total()
}

func crossEntropyGradGo(dst, src []float32, top, rest, scale float32) {
	for i, v := range src {
		dst[i] = exp32((v-top)-rest) * scale
	}
}
