package cpu

// kernels is one path: the inner loop of matrix products, on which the last bit
// of everything depends.
type kernels struct {
	name string
	// tile computes C = A·B, or C += A·B, for a tile of mr × nr. A is packed as
	// k columns of mr, B as k rows of nr, C has rows of ldc. Each element is
	// summed in ascending k from zero and then stored or added.
	mr, nr int
	tile   func(k int, a, b, c *float32, ldc int, add bool)
}

// goKernels is the path that every processor can run.
var goKernels = kernels{name: "go", mr: 4, nr: 4, tile: tileGo}
