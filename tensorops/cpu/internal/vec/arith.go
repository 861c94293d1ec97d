package vec

import "unsafe"

// Add stores a + b.
func (k *Kernels) Add(dst, a, b []float32) { k.add(dst, a[:len(dst)], b[:len(dst)]) }

// AddPast stores a + b past the caches: the faster for what is too large to be found there when it is read.
func (k *Kernels) AddPast(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	if len(dst) < 32 {
		k.add(dst, a, b)
		return
	}
	lo := int(-uintptr(unsafe.Pointer(&dst[0])) % 64 / 4)
	hi := lo + (len(dst)-lo)&^15
	k.add(dst[:lo], a[:lo], b[:lo])
	k.addPast(dst[lo:hi], a[lo:hi], b[lo:hi])
	k.add(dst[hi:], a[hi:], b[hi:])
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

func colSumGo(sum, x []float32) {
	for j := range sum {
		s := sum[j]
		for r := j; r < len(x); r += len(sum) {
			s += x[r]
		}
		sum[j] = s
	}
}
