package cpu

import "unsafe"

// tileGo computes a 4×4 tile of C. The sixteen sums are separate variables, so
// that the compiler can keep most of them in registers.
func tileGo(k int, pa, pb, pc *float32, ldc int, add bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 float32
	var c20, c21, c22, c23, c30, c31, c32, c33 float32
	as, bs := unsafe.Slice(pa, 4*k), unsafe.Slice(pb, 4*k)
	for len(as) >= 4 && len(bs) >= 4 {
		b0, b1, b2, b3 := bs[0], bs[1], bs[2], bs[3]
		a := as[0]
		c00 += a * b0
		c01 += a * b1
		c02 += a * b2
		c03 += a * b3
		a = as[1]
		c10 += a * b0
		c11 += a * b1
		c12 += a * b2
		c13 += a * b3
		a = as[2]
		c20 += a * b0
		c21 += a * b1
		c22 += a * b2
		c23 += a * b3
		a = as[3]
		c30 += a * b0
		c31 += a * b1
		c32 += a * b2
		c33 += a * b3
		as, bs = as[4:], bs[4:]
	}
	c := unsafe.Slice(pc, 3*ldc+4)
	storeRow(c, add, c00, c01, c02, c03)
	storeRow(c[ldc:], add, c10, c11, c12, c13)
	storeRow(c[2*ldc:], add, c20, c21, c22, c23)
	storeRow(c[3*ldc:], add, c30, c31, c32, c33)
}

func storeRow(c []float32, add bool, v0, v1, v2, v3 float32) {
	c = c[:4]
	if add {
		v0, v1, v2, v3 = c[0]+v0, c[1]+v1, c[2]+v2, c[3]+v3
	}
	c[0], c[1], c[2], c[3] = v0, v1, v2, v3
}
