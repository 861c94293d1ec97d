package vec

// Add stores a + b.
func (k *Kernels) Add(dst, a, b []float32) { k.add(dst, a[:len(dst)], b[:len(dst)]) }

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
