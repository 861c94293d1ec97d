package vec

import "math"

// Max returns the largest element, −Inf if there is none. A NaN is passed over.
func (k *Kernels) Max(x []float32) float32 { return k.max(x) }

// ExpSum replaces x by e to the power of scale·x − top, and returns the sum.
func (k *Kernels) ExpSum(x []float32, scale, top float32) float32 { return k.expSum(x, scale, top) }

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

// SoftmaxGrad goes back through a row of attention. It replaces scores s by the
// probabilities p = e to the power of scale·s − lse, and their gradient dp by
// the scores': p·(dp − delta)·scale.
func (k *Kernels) SoftmaxGrad(s, dp []float32, scale, lse, delta float32) {
	k.softmaxGrad(s, dp[:len(s)], scale, lse, delta)
}

// SoftmaxDropGrad is SoftmaxGrad where a dropout followed the probabilities:
// keep is its mask and inverse its scale. s becomes the probabilities after
// dropout.
func (k *Kernels) SoftmaxDropGrad(s, dp []float32, keep []uint32, scale, lse, delta, inverse float32) {
	k.softmaxDropGrad(s, dp[:len(s)], keep[:len(s)], scale, lse, delta, inverse)
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

func expSumGo(x []float32, scale, top float32) float32 {
	var sum sums
	for i, v := range x {
		x[i] = exp32(v*scale - top)
		sum[i%foldLanes] += x[i]
	}
	return sum.total()
}

func sumExpGo(x []float32, top float32) float32 {
	var sum sums
	for i, v := range x {
		sum[i%foldLanes] += exp32(v - top)
	}
	return sum.total()
}

func softmaxGradGo(s, dp []float32, scale, lse, delta float32) {
	for i, v := range s {
		p := exp32(v*scale - lse)
		s[i] = p
		dp[i] = p * (dp[i] - delta) * scale
	}
}

func softmaxDropGradGo(s, dp []float32, keep []uint32, scale, lse, delta, inverse float32) {
	for i, v := range s {
		p := exp32(v*scale - lse)
		s[i] = masked(p, keep[i]) * inverse
		dp[i] = p * (masked(dp[i], keep[i])*inverse - delta) * scale
	}
}

func crossEntropyGradGo(dst, src []float32, top, rest, scale float32) {
	for i, v := range src {
		dst[i] = exp32((v-top)-rest) * scale
	}
}
