// Package vec holds the vectorized loops of the CPU device over slices of any
// length and alignment: activations, norms, cross-entropy, rotary embeddings,
// dropout, optimizers, bfloat16. There is a path for AVX-512, one for AVX2, one
// for NEON and one in Go. How the work is split over cores is its callers' business.
//
// # Bits
//
// An element's result depends on its operands alone: not on its place in the
// slice, nor on how a range is split. AVX2, AVX-512 and NEON give the same bits: all
// use the same operations in the same order, multiply-adds at the same places,
// and sum a row in the same lanes: element i is added to lane i mod 32 of
// float32 (or i mod 16 of float64), and the lanes are combined by halves, i with
// i + 16, with i + 8 and so on. (What may differ is which NaN a result is, and the sign
// of a largest element that is 0.) The Go path has the same order, but leaves
// multiply-adds to the compiler, so that its last bits differ.
//
// # Precision
//
// Exp is within 0.9 ulp (the Go path: 1.2) where the result is at least 1.7e-38,
// and 0 below, so that it is never subnormal. Tanh is within 1.6 ulp. Norms take
// their statistics in float64; other sums over a row are of 32 float32 lanes.
//
// Operands have the length of the first slice, which is the result, or more; a
// shorter one is a panic. Unless a function says otherwise, a result may be in
// the place of an operand, but not overlap it in part.
//
// The package must not know tensors. Its assembly is generated: see package asmgen.
package vec

//go:generate sh -c "cd ../asmgen && go run . vec"
