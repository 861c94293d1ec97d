package count

// Arguments of matmul.cuh and matmul.cu.
type (
	matmulArgs struct {
		C, A, B, Bias             uint64
		CStride, AStride, BStride int64
		First, Last               int64
		M, N                      int32
		Parts, Accumulate, BF16   int32
		QuadsA, QuadsB, QuadsC    int32
	}
	matmulSumArgs struct {
		C, Parts, Bias             uint64
		CStride, Elements          int64
		N, Pieces, Accumulate, Pad int32
	}
)

// multiplied is a product by the kernels here, in pieces of the depth if the grid has several
// rows. Their tiles of A and B are read by many blocks, and C is written after each piece of the depth: in
// caches.
func multiplied(transA, transB bool) func(a *matmulArgs, e *Event, c *Cost) {
	return func(a *matmulArgs, e *Event, c *Cost) {
		m, n, depth := int64(a.M), int64(a.N), a.Last-a.First
		of := func(at uint64, rows, cols, stride int64, trans bool) Operand {
			if trans {
				return matrix(at+uint64(4*a.First*stride), depth, rows, stride, 4).again()
			}
			return matrix(at+uint64(4*a.First), rows, cols, stride, 4).again()
		}
		c.FLOPs = 2 * float64(m) * float64(n) * float64(depth)
		c.reads(of(a.A, m, depth, a.AStride, transA), of(a.B, n, depth, a.BStride, !transB))
		if a.Parts != 0 {
			c.writes(array(a.C, int64(e.Grid[1])*m*n, 4))
			return
		}
		to := matrix(a.C, m, n, a.CStride, 4).again()
		c.writes(to)
		c.reads(array(a.Bias, n, 4).again())
		if a.Accumulate != 0 {
			c.reads(to)
		} else {
			to.Use = Cached // from the second piece of the depth on
			c.reads(to)
		}
	}
}

func productKernels() map[string]costOf {
	all := map[string]costOf{
		"matmul_sum": line(Products, func(a *matmulSumArgs, _ *Event, c *Cost) {
			n := int64(a.N)
			to := matrix(a.C, a.Elements/max(n, 1), n, a.CStride, 4)
			c.writes(to)
			c.reads(array(a.Parts, int64(a.Pieces)*a.Elements, 4))
			if a.Accumulate != 0 {
				c.reads(to)
			} else {
				c.reads(array(a.Bias, n, 4).again())
			}
		}),
	}
	for form, trans := range map[string][2]bool{"nn": {}, "nt": {false, true}, "tn": {true, false}, "tt": {true, true}} {
		for _, kernel := range []string{"matmul_" + form, "matmul_mma_" + form} {
			for _, width := range []string{"_64", "_128"} {
				all[kernel+width] = line(Products, multiplied(trans[0], trans[1]))
			}
		}
	}
	return all
}
