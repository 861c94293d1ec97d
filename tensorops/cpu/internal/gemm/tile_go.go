package gemm

import "unsafe"

// The tiles in Go are 4 × 4, of packed operands alone. The sixteen sums are separate variables, so that
// the compiler can keep most of them in registers.

func tileGo4(strips, k int, a, b, c *float32, _, _, ldc int, add bool, _ *byte, _, _, _ int) {
	tilesGo(strips, 4, k, a, b, c, ldc, add)
}
func tileGo3(strips, k int, a, b, c *float32, _, _, ldc int, add bool, _ *byte, _, _, _ int) {
	tilesGo(strips, 3, k, a, b, c, ldc, add)
}
func tileGo2(strips, k int, a, b, c *float32, _, _, ldc int, add bool, _ *byte, _, _, _ int) {
	tilesGo(strips, 2, k, a, b, c, ldc, add)
}
func tileGo1(strips, k int, a, b, c *float32, _, _, ldc int, add bool, _ *byte, _, _, _ int) {
	tilesGo(strips, 1, k, a, b, c, ldc, add)
}

func tilesGo(strips, rows, k int, pa, pb, pc *float32, ldc int, add bool) {
	a, b := unsafe.Slice(pa, 4*k*strips), unsafe.Slice(pb, 4*k)
	c := unsafe.Slice(pc, (strips*rows-1)*ldc+4)
	for s := range strips {
		tile := sums4x4(a[4*k*s:][:4*k], b)
		for r := range rows {
			out := c[(s*rows+r)*ldc:][:4]
			for j, v := range tile[r] {
				if add {
					v = out[j] + v
				}
				out[j] = v
			}
		}
	}
}

func sums4x4(as, bs []float32) [4][4]float32 {
	var c00, c01, c02, c03, c10, c11, c12, c13 float32
	var c20, c21, c22, c23, c30, c31, c32, c33 float32
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
	return [4][4]float32{{c00, c01, c02, c03}, {c10, c11, c12, c13}, {c20, c21, c22, c23}, {c30, c31, c32, c33}}
}
