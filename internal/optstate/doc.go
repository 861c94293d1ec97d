// Package optstate holds the two forms in which an optimizer's state takes fewer bits than float32: how a tensor of it is stored, and
// the loops that store and read it.
//
// # bfloat16
//
// A number is rounded at random to one of its two neighbors in bfloat16, so that the mean of the result is the number. So the small
// changes of a running mean, which are below half the distance of two numbers, are not lost. With 16 random bits r:
//
//	stored = (bits of the float32 + r) >> 16
//
// # int8
//
// A tensor is cut into blocks of 256 elements in the order of its memory; the last one may have fewer. A block has a scale in
// float32, its largest magnitude, and a code of 8 bits for each element. A code stands for one of the values of the dynamic code of
// Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022, arXiv 2110.02861), which are dense near 1 and still tell
// small numbers apart. Decade i from 0 to 6 has n values in equal steps:
//
//	10^(i−6) · (0.1 + 0.9·(j + 1/2)/n), j from 0 to n−1
//
// Besides these there are 0 and 1. There are two codes:
//
//   - Signed, of a mean of gradients: a bit for the sign and 7 bits for a magnitude, with n = 2^i from i = 1 on. The value of decade 0
//     makes room for 1, so that both ends of a block are stored exactly. A number is read as value · scale.
//   - Root, of a mean of squares: n = 2^(i+1). The block holds the roots of the numbers, and the update divides by the root. A number
//     is read as (value · scale)². A number above 0 is never stored as 0, since the update would then divide by Eps alone.
//
// Between two values a number is rounded at random, as for bfloat16, with 16 random bits. A scale is at least 2^-40, so that every
// number that is read is 0 or a normal float32. What is read and stored again, with the nearest value, has the same codes and scales,
// except the scales of blocks of zeros. So a checkpoint loses nothing.
//
// # Random bits
//
// The bits of an element are a function of a key, the number of the update, and the element's index in its parameter. They do not
// depend on threads or on the parts in which a tensor is stored.
//
// The package must not know tensors, operations or optimizers.
package optstate
