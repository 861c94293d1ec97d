// The gradient of attention of documents that share a sequence, on the tensor cores.
#include "attention_grad_mma.cuh"

GRADIENT(attention_grad_mma_64_starts, 64, 2, GRAD_QUERIES_64, false, false, true)
GRADIENT(attention_grad_mma_128_starts, 128, 1, GRAD_QUERIES_128, false, false, true)
GRADIENT(attention_grad_mma_64_dropped_starts, 64, 2, GRAD_QUERIES_64, true, false, true)
GRADIENT(attention_grad_mma_128_dropped_starts, 128, 1, GRAD_QUERIES_128, true, false, true)
GRADIENT(attention_grad_mma_64_capped_starts, 64, 2, GRAD_QUERIES_64, false, true, true)
GRADIENT(attention_grad_mma_128_capped_starts, 128, 1, GRAD_QUERIES_128, false, true, true)
