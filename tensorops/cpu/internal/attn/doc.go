// Package attn computes causal attention of one head on one core: softmax(q·kᵀ·s)·v
// and its gradient, without ever holding the scores of all queries and keys.
//
// Scores exist for one strip of a matrix product at a time: a few queries by up to
// maxDepth keys (forward), or a few keys by up to maxDepth queries (backward), in
// the first-level cache. They come out of one product in the order in which the
// next product reads its packed operand (see package gemm), so that only dS, which
// is used both ways, is packed again.
//
// Forward: for each strip of queries and each block of keys, Sᵀ = k·qᵀ; a running
// maximum and sum for each query (the online softmax of Milakov and Gimelshein,
// arXiv 1805.02867); Oᵀ += vᵀ·Pᵀ. Backward: from the saved logarithm of the sum, for
// each block of queries and each strip of keys, S = q·kᵀ and dP = do·vᵀ; P and dS in
// one pass; dvᵀ += doᵀ·P, dkᵀ += qᵀ·dS, and dq += dS·k block by block of keys (the
// recomputation of FlashAttention, arXiv 2205.14135). Only what the mask leaves
// visible is computed, in whole strips.
//
// Sums run in ascending order of keys and of queries: the bits depend on the sizes
// only. AVX2 and AVX-512 differ in how much of a masked strip they compute, which
// adds zeros, and so give the same bits; NEON's strips are those of AVX2.
//
// Matrices in memory are float32 or bfloat16, each on its own. AVX512BF16 and AMX multiply bfloat16: q, k,
// v and do are rounded as they are packed, if they are not bfloat16, and P and dS where they
// become an operand. All else is float32: scores and sums, the softmax, whose sum is that of P before
// it is rounded, and do·o. Another path that multiplies bfloat16 needs a product of its own.
//
// A soft cap is applied to scores in a pass of its own, before hidden ones are marked; its slopes go into dS. What no
// window sees is not computed, except at the borders of strips, where it adds zeros: the bits are those of all keys.
//
// Where queries see no key before their document, blocks and strips of keys are computed from the first that one
// of the queries sees, so the cost is that of the documents.
//
// It knows no tensors, and splits nothing over cores.
package attn
