package cpu

// kernels is one path: the inner loops on which the last bit of everything
// depends.
type kernels struct {
	name string
	// tile computes C = A·B, or C += A·B, for a tile of mr × nr. A is packed as
	// k columns of mr, B as k rows of nr, C has rows of ldc. Each element is
	// summed in ascending k from zero and then stored or added.
	mr, nr int
	tile   func(k int, a, b, c *float32, ldc int, add bool)
	// exp computes dst[i] = e^src[i], within 2 ulp where the result is a normal
	// number. dst may be src.
	exp func(dst, src []float32)
}

// goKernels is the path that every processor can run.
var goKernels = kernels{name: "go", mr: 4, nr: 4, tile: tileGo, exp: expGo}

func expGo(dst, src []float32) {
	for i, v := range src {
		dst[i] = exp32(v)
	}
}
