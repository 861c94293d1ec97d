package vec

import (
	"fmt"
	"unsafe"
)

// Add stores a + b.
func (k *Kernels) Add(dst, a, b []float32) { k.add(dst, a[:len(dst)], b[:len(dst)]) }

// MostOperands is how many numbers Sum adds at once.
const MostOperands = 4

// Sum stores the sum of two to four operands, one after the other: (src[0] + src[1]) + src[2] and so on. dst may be any of
// them. past: it is stored past the caches, which is faster for what is too large to be found there when it is read.
func (k *Kernels) Sum(dst []float32, past bool, src ...[]float32) {
	kept := adders{k.add, k.addThree, k.addFour}
	if !past || len(dst) < 32 {
		kept.run(dst, src, 0, len(dst))
		return
	}
	lo := int(-uintptr(unsafe.Pointer(&dst[0])) % 64 / 4)
	hi := lo + (len(dst)-lo)&^15
	kept.run(dst, src, 0, lo)
	adders{k.addPast, k.addThreePast, k.addFourPast}.run(dst, src, lo, hi)
	kept.run(dst, src, hi, len(dst))
}

// adders are the loops for two, three and four operands.
type adders struct {
	two   func(dst, a, b []float32)
	three func(dst, a, b, c []float32)
	four  func(dst, a, b, c, d []float32)
}

// run stores the sums from lo to hi.
func (s adders) run(dst []float32, src [][]float32, lo, hi int) {
	x := func(i int) []float32 { return src[i][lo:hi] }
	switch to := dst[lo:hi]; len(src) {
	case 2:
		s.two(to, x(0), x(1))
	case 3:
		s.three(to, x(0), x(1), x(2))
	case MostOperands:
		s.four(to, x(0), x(1), x(2), x(3))
	default:
		panic(fmt.Sprintf("vec: a sum of %d operands", len(src)))
	}
}

// ColSum adds the rows of x, each as long as sum, to sum, in ascending order.
func (k *Kernels) ColSum(sum, x []float32) {
	c := len(sum)
	for ; c > 0 && len(x) >= 4*c; x = x[4*c:] {
		k.colSum(sum, x[:4*c])
	}
	for ; c > 0 && len(x) >= c; x = x[c:] {
		k.add(sum, sum, x[:c])
	}
}

func addGo(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v + b[i]
	}
}

func addThreeGo(dst, a, b, c []float32) {
	for i, v := range a {
		dst[i] = v + b[i] + c[i]
	}
}

func addFourGo(dst, a, b, c, d []float32) {
	for i, v := range a {
		dst[i] = v + b[i] + c[i] + d[i]
	}
}

func colSumGo(sum, x []float32) {
	for j := range sum {
		s := sum[j]
		for r := j; r < len(x); r += len(sum) {
			s += x[r]
		}
		sum[j] = s
	}
}
