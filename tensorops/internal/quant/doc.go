// Package quant holds the two formats in which devices keep frozen weights in 8 or 4 bits: how a row of
// numbers is stored, and the loops in Go that store and read it. Devices have their own loops with the same
// results.
//
// # Formats
//
// A row is cut into blocks of 64 numbers; the last one may have fewer. A block has a scale in float32.
//
//   - Int8: the scale is the block's largest magnitude / 127. A number is stored as itself / scale, rounded
//     to the nearest integer, ties to even (equation 1 of QLoRA: Dettmers et al., "QLoRA: Efficient
//     Finetuning of Quantized LLMs", 2023, arXiv 2305.14314). It is read as integer · scale.
//   - NF4: the scale is the block's largest magnitude. A number / scale is stored as the index of the nearest
//     of the 16 values of the 4-bit NormalFloat (appendix E of the same paper). It is read as value · scale.
//
// Each step is one operation in float32, so every device computes the same bytes and the same numbers. A
// block with an infinity or a NaN gets the scale NaN: the damage shows in every result.
//
// # Layout
//
// A row has the codes of all its blocks, then their scales, both padded to whole blocks. NF4 packs two numbers
// in a byte, the first one in the upper half, as bitsandbytes does. So a row takes 1.0625 or 0.5625 bytes a
// number, and a view of rows needs nothing from outside them.
//
// The package must not know tensors or operations.
package quant
