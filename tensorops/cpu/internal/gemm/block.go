package gemm

// Block computes C = A·B, or C += A·B where add is set, from packed operands: m
// rows of A and n columns of B, both of depth k ≤ BlockK. C's rows are
// contiguous.
func (kn *Kernel) Block(c Matrix, m, n, k int, a, b []float32, add bool) {
	full := m / kn.MR
	for j := 0; j < n; j += kn.NR {
		strip := &b[j*k]
		if j+kn.NR > n {
			kn.border(c.At(0, j), m, n-j, k, a, strip, add)
			continue
		}
		if full > 0 {
			kn.tile[kn.MR](full, k, &a[0], strip, &c.Data[j], c.Row, add)
		}
		if i := full * kn.MR; i < m {
			kn.tile[m-i](1, k, &a[i*k], strip, &c.Data[i*c.Row+j], c.Row, add)
		}
	}
}

// border computes the columns of an incomplete strip of B: whole tiles beside C,
// by the same sums, of which the first n columns are stored.
func (kn *Kernel) border(c Matrix, m, n, k int, a []float32, strip *float32, add bool) {
	var tile [maxTile]float32
	for i := 0; i < m; i += kn.MR {
		rows := min(kn.MR, m-i)
		kn.tile[rows](1, k, &a[i*k], strip, &tile[0], kn.NR, false)
		for r := range rows {
			dst, src := c.Data[(i+r)*c.Row:][:n], tile[r*kn.NR:][:n]
			if !add {
				copy(dst, src)
				continue
			}
			for j, v := range src {
				dst[j] += v
			}
		}
	}
}
