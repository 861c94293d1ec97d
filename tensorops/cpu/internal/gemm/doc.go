// Package gemm holds the inner loops of matrix products on one core: packing
// operands into the order in which the loops read them, and multiplying packed
// blocks. Operands are float32 or bfloat16 in memory, and C is float32. How a product
// is split over cores is its caller's business.
//
// # Bits
//
// An element of C is a sum over k. It is cut into pieces of BlockK; each piece
// is summed in ascending k from zero, by fused multiply-adds on the assembly
// paths, and the pieces are added to C in ascending order. Nothing else decides
// the bits: not the sizes of the other blocks, not the place of the element, not
// the number of cores, and not whether the path is AVX2, AVX-512 or NEON. (The path in
// Go leaves multiply-adds to the compiler and differs in the last bits. AMX and PairKernel, which
// only multiply bfloat16, add products in pairs, and their pieces are as long as the
// depth alone says.)
//
// # Layout
//
// An operand is packed in strips: MR rows of A, or NR columns of B. A strip
// holds, for each k in turn, its MR or NR numbers. Past the border of the
// operand a strip holds arbitrary numbers, whose products are never stored. Where
// bfloat16 is multiplied as such, the numbers are pairs of consecutive k.
//
// Its assembly is generated: see package asmgen.
package gemm
